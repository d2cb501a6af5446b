"""`smm1`: FedXGBoost-SMM, first version: the active party's kernel vectors mask the passive parties' split columns."""
