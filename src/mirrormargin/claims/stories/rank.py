r"""Max-margin solutions in the Frobenius and the nuclear norm: do they exist, and of what rank?

Sequences of T unit tokens, as in the authors' program, for the tokens of the highest score. Where
nothing separates there is no solution; the authors' program then counts a rank of 1.

Axes: S problems, one for each size and seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.checks import all_at_most, mean_near, share_at_least, surely_smaller
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Arrays, Settings, Story, list_seeds
from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.spread import find_mean, find_share

__all__ = ["STORY"]

SINGULAR = 1e-4  # a singular value counts above this share of the largest
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
STYLES = ("line", "dashed")
CHOSEN = ("separable", "drawn_separable")  # the best tokens, and random ones
NORMS = (0, 1)  # indices of the Frobenius norm and of the nuclear norm

ARRAYS = {
    "n, T, d, seed": "S",
    "separable": "S: whether the tokens of the highest score can be selected",
    "rank": "S 2: of the Frobenius and the nuclear solution, singular values above 1e-4 of the"
    " largest; 0 without a solution, -1 where it was not computed",
    "kept, dropped": "S: the smallest singular value of the nuclear solution that counts, and the"
    " largest that does not, over the largest; nan without one",
    "drawn_separable": "S: the same for tokens drawn at random",
}


def split(settings: Settings) -> list[tuple[int, int, int]]:
    return [(n, T, d) for n, T in settings["sizes"] for d in settings["d"]]


def run(settings: Settings, part: Any) -> Arrays:
    import mirrormargin as mm

    n, T, d = part
    seeds = list_seeds(settings, first=0)
    problems = [mm.synthetic.unit_sphere(seed, n, T, d) for seed in seeds]
    drawn = np.stack([np.random.default_rng([seed, 11]).integers(0, T, n) for seed in seeds])
    best = np.stack([problem.optimal_tokens for problem in problems])
    solved = mm.solve_many(
        problems, np.stack([best, drawn], axis=1)[:, None], threads=1, raise_on_failure=False
    )
    separable = np.asarray(solved.margin[:, 0] > 0)
    rank = np.zeros((len(seeds), 2), dtype=int)
    kept, dropped = np.full((2, len(seeds)), np.nan)
    for k in np.flatnonzero(separable[:, 0]):
        values = np.linalg.svd(solved.W[k, 0, 0], compute_uv=False)
        rank[k, 0] = (values > SINGULAR * values[0]).sum()
        if k < settings["num_nuclear"]:
            found = mm.solve_nuclear_svm(
                problems[k].tokens, problems[k].queries, best[k], threads=1
            )
            rank[k, 1] = found.rank
            shares = np.linalg.svd(found.W, compute_uv=False)
            shares /= shares[0]
            kept[k] = shares[found.rank - 1]
            dropped[k] = shares[found.rank] if found.rank < d else np.nan
        else:
            rank[k, 1] = -1
    sizes = {name: np.full(len(seeds), size) for name, size in (("n", n), ("T", T), ("d", d))}
    return {
        **sizes,
        "seed": np.array(seeds),
        "separable": separable[:, 0],
        "rank": rank,
        "kept": kept,
        "dropped": dropped,
        "drawn_separable": separable[:, 1],
    }


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
            surely_smaller(
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


def _find_rows(evidence: Evidence, size: tuple[int, int, int]) -> Any:
    return np.all(
        [evidence[name] == value for name, value in zip("nTd", size, strict=True)], axis=0
    )


def _find_rank(evidence: Evidence, size: tuple[int, int, int]) -> Any:
    """Ranks as published: 1 without a solution."""
    return np.maximum(evidence["rank"][_find_rows(evidence, size), 0], 1)


def _name(size: tuple[int, int, int]) -> str:
    return ", ".join(map(str, size))


CLAIMS = (
    Claim(
        id="C2.thm.feasible",
        title="In enough dimensions every choice of tokens can be separated",
        statement="If tokens and queries are in general position and d ≥ max(T - 1, n), some W"
        " selects any one token of each sequence.",
        source="C2, theorem on overparameterisation",
        provenance=Provenance.RECALLED,
        published="almost surely",
        examine=examine_feasible,
    ),
    Claim(
        id="C2.fig.rank",
        title="Max-margin solutions have a rank of at most min(n, d)",
        statement="The rank of both solutions is at most min(n, d), and that of the nuclear one is"
        " somewhat lower.",
        source="C2, figure of ranks",
        provenance=Provenance.SEEN,
        published="Frobenius: min(n, d) where d ≥ 5; nuclear: 4.55, 9.1, 13.9 at d = n = 5, 10, 15",
        examine=examine_rank,
    ),
)


def draw_rank(evidence: Evidence) -> Figure:
    sizes = np.stack([evidence[name] for name in ("n", "T", "d")], axis=1)
    shares, ranks = [], []
    families = list(dict.fromkeys((int(n), int(T)) for n, T, _ in sizes))
    single = len({T for _, T in families}) == 1
    for n, T in families:
        size = f"n = {n}" if single else f"n = {n}, T = {T}"
        inside = (sizes[:, 0] == n) & (sizes[:, 1] == T)
        dims = np.unique(sizes[inside, 2])
        labels = (size, f"{size}, dashed")
        for key, label, style in zip(CHOSEN, labels, STYLES, strict=True):
            spreads = [find_share(evidence[key][inside & (sizes[:, 2] == d)]) for d in dims]
            shares.append(Series(label, dims, *np.array(spreads).T, style=style, group=size))
        for k, label, style in zip(NORMS, labels, STYLES, strict=True):
            known = [evidence["rank"][inside & (sizes[:, 2] == d), k] for d in dims]
            spreads = [find_mean(one[one > 0]) if (one > 0).any() else None for one in known]
            middle = np.array([np.nan if one is None else float(one.middle) for one in spreads])
            if np.isfinite(middle).any():
                ranks.append(Series(label, dims, middle, style=style, group=size))
    return Figure(
        "rank",
        "When tokens can be selected, and the rank of the solutions",
        "Left: share of random problems whose chosen tokens can be selected, with Wilson's 95%"
        " intervals; solid for the best tokens, dashed for random ones. Right: mean rank of the"
        " max-margin solutions where there are some; solid for the least Frobenius norm, dashed for"
        " the least nuclear norm.",
        (
            Panel(
                "separable: best tokens, dashed random ones",
                Axis("dimension d"),
                Axis("share"),
                tuple(shares),
            ),
            Panel(
                "rank: Frobenius norm, dashed nuclear norm",
                Axis("dimension d"),
                Axis("rank"),
                tuple(ranks),
            ),
        ),
    )


STORY = Story(
    name="rank",
    title="ranks of max-margin solutions in the Frobenius and the nuclear norm",
    arrays=ARRAYS,
    profiles={
        "quick": {
            "sizes": [[5, 5], [10, 5], [15, 5]],
            "d": [3, 4, 5, 10],
            "num_seeds": 100,
            "num_nuclear": 4,
        },
        "full": {
            "sizes": [[5, 5], [10, 5], [15, 5], [5, 10], [5, 15]],
            "d": [1, 2, 3, 4, 5, 10, 15, 20],
            "num_seeds": 100,
            "num_nuclear": 100,
        },
    },
    split=split,
    run=run,
    early=True,
    draw=(draw_rank,),
    claims=CLAIMS,
)
