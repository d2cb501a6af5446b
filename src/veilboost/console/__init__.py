"""The web console of a party: jobs, ledger, peers, tables, models and policy, for people (optional extra `console`)."""
