"""C2, "Transformers as Support Vector Machines": W, or K and Q, trained under a fixed head."""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.checks import (
    all_at_least,
    all_at_most,
    all_equal,
    mean_at_least,
    mean_covers,
    mean_near,
    share_at_least,
    smaller,
)
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence

__all__ = ["CLAIMS"]

SOURCE = "C2, "
# Read off the published figure, for (n, T, d).
FROBENIUS_RANK = {
    (5, 5, 3): 2.8,
    (5, 5, 10): 5.0,
    (10, 5, 3): 1.25,
    (10, 5, 4): 3.6,
    (10, 5, 10): 10.0,
    (15, 5, 4): 1.45,
    (15, 5, 5): 4.85,
}
NUCLEAR_RANK = {(5, 5, 5): 4.55, (10, 5, 10): 9.1, (15, 5, 15): 13.9}
# 1 - cos after 2000 steps, for d: of W_fin + R W_dir, and of the solution for one token.
MULTI_TOKEN = {4: (0.034, 0.155), 6: (0.017, 0.145), 8: (0.011, 0.135), 10: (0.0056, 0.12)}
ENOUGH = 10  # runs, for a mean to say something


def examine_frobenius(evidence: Evidence) -> Finding:
    frobenius, nuclear = evidence["cosine"][:, 0].T
    return Finding(
        [
            mean_at_least("cosine of W to the Frobenius solution", frobenius, 0.98),
            smaller(
                "cosine to the Frobenius solution above that to the nuclear", nuclear, frobenius
            ),
        ],
        f"cosine {frobenius.mean():.3f} to the Frobenius solution, {nuclear.mean():.3f} to the"
        " nuclear one",
    )


def examine_nuclear(evidence: Evidence) -> Finding:
    frobenius, nuclear = evidence["cosine"][:, 1].T
    return Finding(
        [
            mean_at_least("cosine of K Q' to the nuclear solution", nuclear, 0.95),
            smaller(
                "cosine to the nuclear solution above that to the Frobenius", frobenius, nuclear
            ),
        ],
        f"cosine {nuclear.mean():.3f} to the nuclear solution, {frobenius.mean():.3f} to the"
        " Frobenius one",
    )


def examine_feasible(evidence: Evidence) -> Finding:
    n, T, d = (evidence[name] for name in "nTd")
    wide = d >= np.maximum(T - 1, n)
    drawn = evidence["drawn_separable"]
    return Finding(
        [
            share_at_least("separable tokens of the highest score", evidence["separable"][wide]),
            share_at_least("separable tokens drawn at random", drawn[wide]),
        ],
        f"{drawn[wide].mean():.0%} of {wide.sum()} random selections separate at d ≥ max(T - 1, n),"
        f" {drawn[~wide].mean():.0%} of {(~wide).sum()} at smaller d",
    )


def examine_global(evidence: Evidence) -> Finding:
    descent = evidence["rule"] == "constant"
    optimal, D = evidence["optimal"][:, descent], evidence["divergence"][:, descent]
    return Finding(
        [
            all_at_least("share of optimal tokens", optimal, 1.0),
            all_at_least(
                "fall of 1 - cos from the first to the last step", D[..., 0] - D[..., -1], 0.5
            ),
        ],
        f"{np.mean(optimal == 1):.0%} of {optimal.size} runs from random starts end at the optimal"
        " tokens, at every rate",
    )


def examine_local(evidence: Evidence) -> Finding:
    steps, cosine = evidence["steps"], evidence["cosine"][:, 0]
    at = {step: int(np.searchsorted(steps, step)) for step in (80, 250)}
    frobenius, nuclear = cosine[:, 0, -1], cosine[:, 1, -1]
    W = evidence["attention"][:, 0, at[250]]
    factors = evidence["attention"][:, 1, at[80]]
    return Finding(
        [
            smaller(
                "cosine to the Frobenius solution above that to the nuclear", nuclear, frobenius
            ),
            mean_near("cosine of W to the Frobenius solution", frobenius, 0.99, 0.02),
            mean_near("cosine of W to the nuclear solution", nuclear, 0.86, 0.02),
            mean_near("attention of W at step 250", W, 0.98, 0.02),
            mean_near("attention of K Q' at step 80", factors, 1.0, 0.02),
        ],
        f"cosine {frobenius.mean():.3f} and {nuclear.mean():.3f}; attention {W.mean():.3f} at step"
        f" 250, {factors.mean():.3f} at step 80",
    )


def examine_planar(evidence: Evidence) -> Finding:
    cosine = evidence["cosine"]
    best = np.broadcast_to(evidence["optimal"][:, None], evidence["selection"].shape)
    own, other = cosine[:, [0, 1], [0, 1]], cosine[:, [0, 1], [1, 0]]
    return Finding(
        [
            all_equal("selected tokens", evidence["selection"], best),
            all_at_least("cosine of W to the Frobenius solution", own[:, 0], 0.99),
            all_at_least("cosine of K Q' to the nuclear solution", own[:, 1], 0.95),
            all_at_least("lead of the own solution over the other one", own - other, 0.0),
        ],
        f"cosine of W {own[:, 0].min():.4f} or more, of K Q' {own[:, 1].min():.3f} or more",
    )


def examine_rank(evidence: Evidence) -> Finding:
    rank, solved = evidence["rank"], evidence["separable"]
    both = solved & (rank[:, 1] > 0)
    kept, dropped = evidence["kept"][both], evidence["dropped"][both]
    excess = (rank - np.minimum(evidence["n"], evidence["d"])[:, None])[solved]
    frobenius = {size: _find_rank(evidence, size) for size in FROBENIUS_RANK}
    nuclear = {
        size: rank[rows & both, 1]
        for size in NUCLEAR_RANK
        if (rows := _find_rows(evidence, size) & both).any()
    }
    return Finding(
        [
            all_at_most("rank above min(n, d)", excess, 0),
            smaller(
                "rank in the Frobenius norm above that in the nuclear norm", *rank[both, ::-1].T
            ),
            *(
                mean_near(f"Frobenius rank at n, T, d = {_name(size)}", ranks, published, 0.1)
                for size, published in FROBENIUS_RANK.items()
                if (ranks := frobenius[size]).size
            ),
            *(
                mean_near(
                    f"nuclear rank at n, T, d = {_name(size)}", ranks, NUCLEAR_RANK[size], 0.3
                )
                for size, ranks in nuclear.items()
            ),
        ],
        f"rank ≤ min(n, d) in {np.mean(excess <= 0):.0%} of the solutions; on average"
        f" {rank[both, 0].mean():.1f} in the Frobenius and {rank[both, 1].mean():.1f} in the"
        " nuclear norm",
        f"Singular values from {kept.min():.0e} of the largest on count; the largest of the others"
        f" is {np.nanmax(dropped):.0e}, in solutions that are certified. The published count takes"
        " all above 1e-7. Where nothing separates, the published curves count a rank of 1, and so"
        f" do the Frobenius ranks here; {np.mean(~solved):.0%} of the problems have no solution",
    )


def examine_multi_token(evidence: Evidence) -> Finding:
    counts, d = evidence["counts"], evidence["d"]
    eq, one = (1 - evidence[f"cosine_{name}"][counts, -1] for name in ("eq", "one"))
    d = d[counts]
    means = {size: eq[d == size].mean() for size in MULTI_TOKEN if (d == size).any()}
    enough = [size for size in means if (d == size).sum() >= ENOUGH]
    checks = [
        smaller("1 - cos to W_fin + R W_dir below that to the one-token solution", eq, one),
    ]
    if len(enough) > 1:
        ratio = means[enough[-1]] / means[enough[0]]
        checks.append(
            all_at_most("mean 1 - cos at the largest d over that at the smallest", ratio, 0.5)
        )
    for size in enough:
        # Read off a logarithmic axis, to about a tenth.
        predicted, single = MULTI_TOKEN[size]
        at = d == size
        checks += [
            mean_covers(f"1 - cos at d = {size}", eq[at], predicted, 0.1 * predicted),
            mean_covers(
                f"1 - cos to the one-token solution at d = {size}", one[at], single, 0.1 * single
            ),
        ]
    return Finding(
        checks,
        "1 - cos "
        + ", ".join(f"{mean:.2g} (d = {size})" for size, mean in means.items())
        + f"; one-token solution {one.mean():.2f}",
        f"{counts.sum()} of {counts.size} runs count ("
        + ", ".join(f"{(d == size).sum()} at d = {size}" for size in means)
        + "; 500 each as published): in the others attention stays between 1e-6 and 1e-3 somewhere,"
        f" or no token is dropped. Means of fewer than {ENOUGH} runs are not checked",
    )


def _find_rows(evidence: Evidence, size: tuple[int, int, int]) -> Any:
    return np.all(
        [evidence[name] == value for name, value in zip("nTd", size, strict=True)], axis=0
    )


def _find_rank(evidence: Evidence, size: tuple[int, int, int]) -> Any:
    """Ranks as published: 1 without a solution."""
    return np.maximum(evidence["rank"][_find_rows(evidence, size), 0], 1)


def _name(size: tuple[int, int, int]) -> str:
    return ", ".join(map(str, size))


CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="C2.thm.frobenius",
        title="W goes to the max-margin solution in the Frobenius norm",
        statement="Gradient descent on the key-query matrix W, here with normalised steps,"
        " converges in direction to the Frobenius max-margin solution of the tokens it selects.",
        source=SOURCE + "theorem on training W",
        provenance=Provenance.SEEN,
        published="cosine → 1",
        experiment="factors",
        examine=examine_frobenius,
        figures=("factors",),
    ),
    Claim(
        id="C2.thm.nuclear",
        title="K Q' goes to the max-margin solution in the nuclear norm",
        statement="If K and Q are trained in place of W, with a vanishing penalty on both, here"
        " none, K Q' converges in direction to the solution of least nuclear norm.",
        source=SOURCE + "theorem on training K and Q",
        provenance=Provenance.SEEN,
        published="cosine → 1",
        experiment="factors",
        examine=examine_nuclear,
        figures=("factors",),
    ),
    Claim(
        id="C2.thm.global",
        title="In many dimensions gradient descent finds the optimal tokens",
        statement="Over-parameterisation makes the landscape benign: with wide tokens gradient"
        " descent goes from random starts to the optimal tokens.",
        source=SOURCE + "discussion of global convergence",
        provenance=Provenance.RECALLED,
        published="global convergence",
        experiment="steps",
        examine=examine_global,
        figures=("steps",),
    ),
    Claim(
        id="C2.thm.feasible",
        title="In enough dimensions every choice of tokens can be separated",
        statement="If tokens and queries are in general position and d ≥ max(T - 1, n), some W"
        " selects any one token of each sequence.",
        source=SOURCE + "theorem on overparameterisation",
        provenance=Provenance.RECALLED,
        published="almost surely",
        experiment="rank",
        examine=examine_feasible,
        figures=("rank",),
    ),
    Claim(
        id="C2.fig.local",
        title="From small starts W aligns with the Frobenius solution, and attention saturates",
        statement="Averaged over problems, W has a higher cosine to the Frobenius solution than to"
        " the nuclear one, and attention goes to one token; with K and Q it does so faster.",
        source=SOURCE + "figures of local convergence",
        provenance=Provenance.SEEN,
        published="cosine 0.99 and 0.86; attention 1 by step 250 (W) and 80 (K, Q)",
        experiment="uniform-starts",
        examine=examine_local,
    ),
    Claim(
        id="C2.fig.planar",
        title="In the plane W z follows the Frobenius solution, and K Q' z the nuclear one",
        statement="On two sequences in the plane training selects the optimal tokens, W goes to the"
        " Frobenius solution and K Q' to the nuclear one.",
        source=SOURCE + "figures of two sequences in the plane",
        provenance=Provenance.SEEN,
        published="paths run along their own solution; no numbers",
        experiment="planar-matrices",
        examine=examine_planar,
        figures=("planar-matrices",),
    ),
    Claim(
        id="C2.fig.rank",
        title="Max-margin solutions have a rank of at most min(n, d)",
        statement="The rank of both solutions is at most min(n, d), and that of the nuclear one is"
        " somewhat lower.",
        source=SOURCE + "figure of ranks",
        provenance=Provenance.SEEN,
        published="Frobenius: min(n, d) where d ≥ 5; nuclear: 4.55, 9.1, 13.9 at d = n = 5, 10, 15",
        experiment="rank",
        examine=examine_rank,
        figures=("rank",),
    ),
    Claim(
        id="C2.fig.multi-token",
        title="Under a nonlinear head several tokens stay, and a generalised SVM predicts W",
        statement="With a ReLU head W is predicted by W_fin + R W_dir, better in more dimensions;"
        " the solution for a single token does not predict it.",
        source=SOURCE + "figure of the generalised SVM",
        provenance=Provenance.SEEN,
        published="1 - cos 0.034 (d = 4) to 0.0056 (d = 10); one token: 0.12 to 0.16",
        experiment="multi-token",
        examine=examine_multi_token,
        figures=("multi-token",),
    ),
)
