"""`smm1`: the first version of FedXGBoost-SMM. Kernel vectors of the gradients mask the passive parties' columns."""
