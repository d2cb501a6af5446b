"""`smm2`: the second version of FedXGBoost-SMM. Kernel vectors of split columns mask the active party's gradients."""
