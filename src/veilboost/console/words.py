"""The terms that the pages use, for a person who does not know them: entries of the glossary of the documentation."""

from __future__ import annotations

WORDS = {
    "Active party": "In vertical training, the party with the labels. It starts and drives the job.",
    "Passive party": "In vertical training, a party with columns and without labels.",
    "Server": "In horizontal training, the process that drives the job and grows the trees. It has no rows.",
    "Participant": "In horizontal training, a party with rows.",
    "Driver": "The party that starts a job and coordinates it: the active party or the server.",
    "Record": "A person or thing that the data describes. A row holds what one party knows about it.",
    "Entity alignment": "Finding the rows that describe the same records at all parties. The result is the common rows "
    "in a common order.",
    "Feature": "A column that the model trains on.",
    "Bin, cut": "An interval of a feature's values; the border between two bins.",
    "Node, level": "A place in a tree; all nodes of one depth.",
    "Gradient, hessian": "First and second derivative of the loss of one row. In the first round the gradients reveal "
    "the labels.",
    "Assignments": "Left/right assignments: for every row of a node, which child the winning split sends it to.",
    "Rows that share a node": "Rows that the splits so far have not separated. Their labels are often similar, so a "
    "party that knows some of them can infer others.",
    "Model share": "The part of a vertical model that one party keeps. No party can predict with its share alone.",
    "Deployment": "An agreement with a lifetime: every passive party keeps its model share and its columns ready, and "
    "the active party scores rows at any time.",
    "Semi-honest": "A party that follows the protocol and studies everything it receives. Statements assume it unless "
    "they say otherwise.",
    "Epsilon, delta": "The parameters of differential privacy: how much one label or record may change the probability "
    "of what others see. Smaller is more private.",
    "Exact release": "Data that is sent without noise. The ledger lists it; no epsilon pays for it.",
    "Ledger": "A party's record of all events and exact releases, over all jobs. It refuses a job that would exceed "
    "the budget.",
    "Audit": "Attacking a run with exactly what each party received.",
    "Daemon": "The process of a party that waits for jobs: veilboost party serve.",
}
