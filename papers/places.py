"""The paper map: each section, equation or algorithm of a paper that we built, where it is, which test holds it, and
which target measures it. A test checks that every function and test exists; `bench/results.py` writes the page."""

from __future__ import annotations

from dataclasses import dataclass

_MASKED, _SMM, _ELXGB, _MAL = (f"veilboost.protocols.{name}" for name in ("masked", "vertical.smm", "elxgb", "mal"))
_SMM1, _SMM2, _LDP = (f"veilboost.protocols.{name}" for name in ("smm1", "smm2", "ldp"))
_TESTS = "tests/unit/protocols/test_"


@dataclass(frozen=True)
class Place:
    """`function` is MODULE:NAME, `test` FILE::NAME; `target` is what measures it, empty where nothing is measured."""

    paper: str
    where: str
    what: str
    function: str
    test: str
    target: str = ""


def _places(paper: str, *lines: tuple[str, str, str, str, str]) -> tuple[Place, ...]:
    return tuple(Place(paper, *line) for line in lines)


_PROPERTIES = "tests/property/test_masked_properties.py::"
_THEOREMS = f"{_TESTS}masked_theorems.py::"
_BREAKS = "tests/unit/audit/test_attacks_masked.py::"
_KERNELS = "tests/property/test_smm_kernels.py::"


PLACES: tuple[Place, ...] = (
    *_places(
        "maskedxgboost",
        (
            "S1, section 4.1",
            "parameters from budgets",
            f"{_MASKED}.parameters:Noise.of",
            f"{_TESTS}masked.py::test_the_papers_setting_is_one_vector_and_the_printed_ratio",
            "trade-off",
        ),
        (
            "Algorithm 1",
            "noise calibration",
            f"{_MASKED}.parameters:Noise.factors",
            f"{_PROPERTIES}test_the_covariance_of_a_mask_is_the_published_one",
            "table-3",
        ),
        (
            "Example 1",
            "the splitting vector",
            f"{_MASKED}.parameters:rows_left",
            f"{_TESTS}masked.py::test_example_1_the_splitting_vector",
            "",
        ),
        (
            "Example 2",
            "a noise vector",
            f"{_MASKED}.passive:LevelMasks.next",
            f"{_TESTS}masked.py::test_example_2_the_noise_vector",
            "",
        ),
        (
            "Algorithm 2",
            "information noising",
            f"{_MASKED}.active:MaskedCipher.read",
            f"{_TESTS}masked.py::test_coefficients_have_the_length_that_c_says",
            "figure-4",
        ),
        (
            "Algorithm 3, lines 9 and 10",
            "scores of noisy sums",
            f"{_MASKED}.passive:noisy_gains",
            f"{_TESTS}masked.py::test_noisy_hessians_outside_of_the_nodes_are_scored_as_printed_or_moved_inside",
            "figure-4",
        ),
        (
            "Remark 2",
            "first order sends no hessians",
            f"{_MASKED}.active:MaskedCipher.shown",
            f"{_TESTS}masked.py::test_first_order_sends_no_hessians_but_weights_do",
            "",
        ),
        (
            "Theorem 1",
            "error of a score",
            f"{_MASKED}.theorems:score_error_bound",
            f"{_THEOREMS}test_theorem_1_bounds_and_equals_its_two_sides",
            "",
        ),
        (
            "Remark 3",
            "tails of the normal distribution: computed, so that no bound is needed",
            f"{_MASKED}.theorems:score_error_bound",
            f"{_THEOREMS}test_theorem_1_bounds_and_equals_its_two_sides",
            "",
        ),
        (
            "Theorem 2",
            "labels under noise",
            f"{_MASKED}.theorems:energy_allowed",
            f"{_THEOREMS}test_theorem_2_bounds_every_change_of_the_vector",
            "figure-12",
        ),
        (
            "section 2.3",
            "advanced composition",
            f"{_MASKED}.theorems:advanced_share",
            f"{_THEOREMS}test_advanced_composition_spends_the_budget",
            "figure-4",
        ),
        (
            "Theorem 3",
            "splitting vectors under masks, as printed",
            f"{_MASKED}.theorems:printed_delta",
            f"{_THEOREMS}test_the_printed_bound_does_not_hold_in_the_other_direction",
            "figure-10",
        ),
        (
            "Theorem 3",
            "the same, corrected",
            f"{_MASKED}.theorems:mask_delta",
            f"{_THEOREMS}test_delta_is_that_of_the_two_gaussians",
            "figure-10",
        ),
        (
            "section 6.5, Figures 7 and 13",
            "the paper's attack on labels",
            "veilboost.audit.attacks:masked_network",
            f"{_BREAKS}test_the_papers_network_fails_where_projection_succeeds",
            "figure-7",
        ),
        (
            "section 6.6, Figures 8 and 14",
            "the paper's attack on splitting vectors",
            "veilboost.audit.attacks:masked_split_search",
            f"{_BREAKS}test_the_search_finds_a_tiny_set_and_no_large_one",
            "figure-8",
        ),
        (
            "appendix F",
            "numbers sent for a node",
            f"{_MASKED}.accounting:numbers_per_node",
            f"{_TESTS}masked.py::test_bytes_are_those_of_appendix_f",
            "appendix-f",
        ),
        (
            "appendix G",
            "masks that a malicious party sends",
            f"{_MASKED}.active:check_masks",
            f"{_TESTS}masked.py::test_masks_that_would_not_hide_are_refused",
            "",
        ),
    ),
    *_places(
        "fedxgboost",
        (
            "Example 1",
            "the splitting matrix",
            "veilboost.boost.columns:ColumnBlock.route",
            f"{_TESTS}smm.py::test_example_1_the_splitting_matrix",
            "",
        ),
        (
            "Algorithm 1",
            "SMM-1, active party",
            f"{_SMM1}.active:Smm1Cipher.read",
            f"{_KERNELS}test_smm1_sums_are_exact_and_no_row_is_bare",
            "smm-overhead",
        ),
        (
            "Algorithm 2",
            "secure response of SMM-1",
            f"{_SMM1}.passive:Smm1PassiveCipher.answer",
            f"{_TESTS}smm.py::test_smm1_answers_of_another_form_are_refused",
            "smm-overhead",
        ),
        (
            "Algorithm 3",
            "secure response of SMM-2",
            f"{_SMM}:masked",
            f"{_KERNELS}test_smm2_sums_are_exact_and_no_row_is_bare",
            "smm-overhead",
        ),
        (
            "Algorithm 4",
            "SMM-2, passive party",
            f"{_SMM2}.passive:Smm2PassiveCipher.answer",
            f"{_TESTS}smm.py::test_smm2_never_tells_which_split_is_best",
            "smm-overhead",
        ),
        (
            "Algorithm 5",
            "secure kernel",
            f"{_SMM2}.passive:secure_kernel",
            f"{_TESTS}smm.py::test_many_kernel_vectors_leave_room_for_splits_and_decoys",
            "smm-overhead",
        ),
        (
            "Algorithm 5, null space",
            "vectors of the null space",
            f"{_SMM}:null_vectors",
            f"{_KERNELS}test_null_vectors_are_orthonormal_and_orthogonal_to_dependent_columns_too",
            "",
        ),
        (
            "Algorithm 6",
            "FedXGBoost-LDP",
            f"{_LDP}.active:LdpCipher.openings",
            f"{_TESTS}ldp.py::test_paper_form_sends_exact_sums_and_books_them_as_such",
            "figure-4",
        ),
        (
            "appendix A",
            "unbiased right sums",
            f"{_LDP}.parameters:score",
            f"{_TESTS}ldp_scores.py::test_independent_right_sums_are_unbiased_and_the_published_ones_are_not",
            "figure-5",
        ),
        (
            "appendix A, first order",
            "the first-order score",
            f"{_LDP}.parameters:first_order",
            f"{_TESTS}ldp_scores.py::test_the_first_order_score_is_the_product_of_both_sides",
            "table-1",
        ),
    ),
    *_places(
        "elxgb",
        (
            "Algorithm 1",
            "HENS: the first tree under encryption",
            f"{_ELXGB}.active:elxgb_active",
            f"{_TESTS}elxgb.py::test_without_noise_the_model_is_that_of_plain_by_either_encryption",
            "figure-5",
        ),
        (
            "Algorithm 2",
            "DPNS: later trees under noise",
            f"{_ELXGB}.active:DpnsCipher.openings",
            f"{_TESTS}elxgb.py::test_with_noise_the_first_tree_is_that_of_plain_and_later_ones_are_not",
            "figure-4",
        ),
        (
            "Algorithm 3",
            "noise on gradients",
            f"{_ELXGB}.parameters:gradient_event",
            f"{_TESTS}elxgb.py::test_noise_is_as_wide_as_algorithm_3_says_and_gradients_are_clipped",
            "table-5",
        ),
        (
            "Algorithm 4",
            "alignment at a CSP",
            "veilboost.align.hmac_csp:HmacActive.align",
            "tests/property/test_align.py::test_hmac_csp_is_set_intersection",
            "table-3",
        ),
        (
            "Algorithm 5",
            "direction obfuscation and inference",
            "veilboost.secure_inference.roles:MemoryService",
            "tests/unit/secure_inference/test_paillier_and_roles.py::test_the_same_node_never_looks_the_same_and_signs_turn",
            "figure-6",
        ),
        (
            "Table 5",
            "guesses from the formula",
            f"{_ELXGB}.parameters:guess_probability",
            f"{_TESTS}elxgb.py::test_table_5s_first_row_is_what_the_formula_gives",
            "table-5",
        ),
        (
            "Table 4",
            "what is protected",
            "papers.elxgb.verdicts:table",
            "tests/unit/papers/test_reproduce_elxgb.py::test_a_verdict_for_every_protocol_and_the_papers_ticks_beside_them",
            "table-4",
        ),
        (
            "section 8, SecureBoost",
            "the baseline, without packing",
            "papers.unpacked:UnpackedCipher",
            "tests/unit/papers/test_reproduce_elxgb.py::test_unpacked_secureboost_gives_the_same_model_for_more_bytes",
            "figure-7",
        ),
    ),
    *_places(
        "mal",
        (
            "Algorithm 1",
            "extremes of a column (SE-Bucket)",
            f"{_MAL}.participant:Extremes",
            f"{_TESTS}mal.py::test_every_encryption_finds_the_ranges",
            "table-3",
        ),
        (
            "section 2.3",
            "order-revealing encryption",
            "veilboost.crypto.ore.api:OreScheme",
            "tests/unit/crypto/test_ore.py::test_order_is_kept",
            "",
        ),
        (
            "section 2.4",
            "noise of a bucket",
            f"{_MAL}.parameters:perturb",
            f"{_TESTS}mal.py::test_buckets_move_as_often_as_they_should",
            "figure-5",
        ),
        (
            "Algorithm 2",
            "erasable label mask",
            f"{_MAL}.masks:BucketSpace.off",
            f"{_TESTS}mal.py::test_the_papers_linear_system_gives_masks_of_the_same_space",
            "table-2",
        ),
        (
            "Algorithm 3",
            "the training stage",
            f"{_MAL}.stumps:Stumps.train",
            f"{_TESTS}mal_stumps.py::test_sums_of_labels_give_the_trees_of_plain",
            "table-2",
        ),
        (
            "section 4.2",
            "the comparison with FederBoost",
            "papers.mal.federboost:compared",
            "tests/unit/papers/test_reproduce_mal.py::test_adding_histograms_up_takes_more_messages_than_mal",
            "federboost",
        ),
    ),
)
