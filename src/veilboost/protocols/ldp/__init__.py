"""`ldp`: every person's gradient gets noise of its own before it leaves the active party."""
