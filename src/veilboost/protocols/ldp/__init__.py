"""`ldp`: the active party adds noise to the gradient of every row before it sends them."""
