"""`smm2`: FedXGBoost-SMM, second version: the passive parties' kernel vectors mask the active party's gradients."""
