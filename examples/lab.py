"""What two papers say about training one attention layer, measured.

    python examples/lab.py [--quick] [--only directions joint rates paths global factors]

directions  Normalised mirror descent on random problems at p = 1.75, 2 and 3: how far each run ends
            from the max-margin solution of the tokens that it selects, with the published "+ eps"
            in the normaliser and without it; mismatched exponents; where the runs end.
joint       W and the head trained together: which tokens are selected, and where both point.
rates       Gradient flow over 300 decades of steps against the proven rates.
paths       The least loss on lp balls: where its direction goes.
global      Equal scores and nearly orthogonal tokens: normalised and Polyak steps reach the
            max-margin direction from random starts, and how much sooner than gradient descent.
factors     K and Q in place of W: nearer to the nuclear-norm solution than to the Frobenius one.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import mirrormargin as mm

EPS = float(np.finfo(np.float64).eps)
PUBLISHED_STEPS = {1.75: 1500, 2.0: 2000, 3.0: 20000}
SECTIONS = ("directions", "joint", "rates", "paths", "global", "factors")


def show_directions(quick: bool) -> None:
    count = 20 if quick else 100
    problems = [mm.synthetic.unit_sphere(seed) for seed in range(1, count + 1)]
    exponents, steps = list(PUBLISHED_STEPS), list(PUBLISHED_STEPS.values())
    if quick:
        steps = [1500, 2000, 4000]
    print(f"{count} problems, lr = 0.1, {steps} steps, W_ij ~ N(0, 1) at the start")
    print("divergence from the max-margin solution      p = 1.75      p = 2      p = 3")
    for name, eps in (("published, + eps", EPS), ("safe gradients", 0.0)):
        record = mm.train_attention(
            problems,
            exponents,
            lr=0.1,
            num_steps=steps,
            init=mm.NormalInit(std=1.0, seeds=0),
            eps=eps,
        )
        D = record.divergence[:, :, 0, -1]
        for label, values in (("mean", D.mean(axis=0)), ("median", np.median(D, axis=0))):
            print(f"{name:>24}, {label:<18}" + "".join(f"{value:11.4f}" for value in values))
    far = np.argwhere(D > 0.02)
    statistics = mm.basin_statistics(record)
    for i, j in far:
        kind, tokens = statistics.kinds[i, j, 0], record.final_selection[i, j, 0].tolist()
        print(f"  D = {D[i, j]:.3f} at seed {i + 1}, p = {exponents[j]:g}: {kind}, tokens {tokens}")
    print("\nmismatched exponents, with the tokens of the run at the column's p or the row's:")
    print(mm.compare_exponents(record))
    print("\nwhere the runs end:")
    print(statistics)


def show_joint(quick: bool) -> None:
    exponents, steps = list(PUBLISHED_STEPS), list(PUBLISHED_STEPS.values())
    for name, eps in (("published, + eps", EPS), ("safe gradients", 0.0)):
        record = mm.train_joint(
            mm.synthetic.joint_toy(), exponents, lr=0.1, num_steps=steps, eps=eps
        )
        for j, p in enumerate(exponents):
            print(
                f"{name:>17}, p = {p:<5g} selects {record.final_selection[0, j, 0].tolist()},"
                f" D(W) = {record.divergence[0, j, 0, -1]:.4f},"
                f" D(v) = {record.head_divergence[0, j, 0, -1]:.4f},"
                f" log loss = {record.log_loss[0, j, 0, -1]:.0f}"
            )
    seeds = range(3 if quick else 20)
    record = mm.train_joint(
        [mm.synthetic.signal_noise(seed) for seed in seeds],
        lr=0.5,
        decay=1.0,
        head_decay=2 / 3,
        num_steps=10_000 if quick else 100_000,
        record=100,
    )
    late = record.steps[0, 0, 0] >= 100
    steps = record.steps[0, 0, 0, late]
    fits = {
        "loss": mm.fit_rate(
            "exp", steps=steps, log_values=record.log_loss[:, 0, 0, late], claimed=1 / 3
        ),
        "1 - attention": mm.fit_rate(
            "power", steps=steps, log_values=record.log_unattended[:, 0, 0, late]
        ),
        "1 - cos of W": mm.fit_rate(
            "log", steps=steps, values=record.divergence[:, 0, 0, late], claimed=1.0
        ),
        "1 - cos of v": mm.fit_rate(
            "power", steps=steps, values=record.head_divergence[:, 0, 0, late]
        ),
    }
    print(
        f"\nsteps 0.5 / (k + 1) and 0.5 / (k + 1)^(2/3) on {len(seeds)} signal-and-noise problems"
    )
    for name, fit in fits.items():
        print(f"  {name:<14} {fit}")


def show_rates(quick: bool) -> None:
    decades = 300
    seeds = range(1, 3) if quick else range(1, 11)
    print(f"mirror flow over {decades} decades of steps, W = 0 at the start, {len(seeds)} problems")
    print(
        "   p  claimed              max D / rate, decades 20-50, last 100   holds   exponent at end"
    )
    for p in (1.25, 1.75, 2.0, 2.5, 3.0, 5.0):
        name, rate = mm.claimed_rate(p)
        early, late, holds, exponents = [], [], [], []
        for seed in seeds:
            flow = mm.mirror_flow(mm.synthetic.unit_sphere(seed), p, decades=decades)
            log_k = np.log(10) * flow.log10_k
            used = flow.log10_k >= 1
            check = mm.bound_holds(
                log_k[used], flow.divergence[used], rate, (20, 50), (decades - 100, decades)
            )
            early.append(check.early_max)
            late.append(check.late_max)
            holds.append(check.holds)
            x, y = np.log(log_k[used]), np.log(flow.divergence[used])
            last = flow.log10_k[used] > decades - 100
            exponents.append(-np.polyfit(x[last], y[last], 1)[0])
        print(
            f"{p:5g}  {name:<20} {np.median(early):12.4g} {np.median(late):20.4g}"
            f" {sum(holds):9d}/{len(holds)} {np.median(exponents):12.2f}"
        )


def show_paths(quick: bool) -> None:
    seeds = range(1, 3) if quick else range(1, 11)
    print("regularisation paths to a loss gap of 1e-300: divergence at the last radius")
    for p in (1.5, 2.0, 3.0):
        paths = [mm.regularization_path(mm.synthetic.unit_sphere(seed), p) for seed in seeds]
        worst = max(path.divergence[-1] for path in paths)
        residual = max(path.residual.max() for path in paths)
        print(f"  p = {p:<4g} worst of {len(paths)}: {worst:.1e}, stationary to {residual:.0e}")
    for p in (1.5, 2.0, 3.0):
        path = mm.joint_regularization_path(mm.synthetic.joint_toy(), p)
        print(
            f"  joint, p = {p:<4g} W: {path.divergence[-1]:.1e}, v: {path.head_divergence[-1]:.1e},"
            f" selects {path.selection[-1].tolist()}"
        )


def show_global(quick: bool) -> None:
    count = 20 if quick else 100
    problems = [mm.synthetic.equal_scores(seed) for seed in range(count)]
    best = np.stack([problem.optimal_tokens for problem in problems])[:, None, None]
    target = mm.solve_many(problems, best).W
    init = mm.NormalInit(std=0.1, seeds=0)
    print(f"{count} problems with equal scores, n = 8, T = 4, d = 64, W_ij ~ N(0, 0.1^2)")
    print("                             1 - cos at step 10         100        1000   worst at 1000")

    def train(rule: str, lr: float) -> tuple[mm.AttentionRecord, float]:
        record = mm.train_attention(
            problems, step_rule=rule, lr=lr, num_steps=1000, init=init, target=target, record=100
        )
        D = record.divergence[:, 0, 0]
        steps = record.steps[0, 0, 0]
        medians = [np.median(D[:, np.abs(steps - k).argmin()]) for k in (10, 100, 1000)]
        cells = "".join(f"{value:12.1e}" for value in medians)
        print(f"  {rule:>12}, lr = {lr:<8g}        {cells}{D[:, -1].max():16.1e}")
        return record, float(medians[-1])

    normalized, reached = train("normalized", 1.0)
    train("polyak", 0.5)
    train("polyak", 1.0)
    descent = min(train("constant", lr)[1] for lr in (1.0, 10.0, 100.0, 300.0, 1000.0))
    print(f"  gradient descent at its best rate ends {descent / reached:.0f} times further away")
    late = normalized.steps[0, 0, 0] >= 100
    steps = normalized.steps[0, 0, 0, late]
    fits = {
        "1 - cos": mm.fit_rate(
            "power", steps=steps, values=normalized.divergence[:, 0, 0, late], claimed=1.0
        ),
        "1 - attention": mm.fit_rate(
            "exp", steps=steps, log_values=normalized.log_unattended[:, 0, 0, late], claimed=1.0
        ),
        "loss gap": mm.fit_rate(
            "exp", steps=steps, log_values=normalized.log_loss_gap[:, 0, 0, late], claimed=1.0
        ),
    }
    print("  normalised steps:")
    for name, fit in fits.items():
        print(f"    {name:<14} {fit}")


def show_factors(quick: bool) -> None:
    problems = [mm.synthetic.unit_sphere(seed) for seed in range(1, 6 if quick else 31)]
    record = mm.train_attention(
        problems,
        parameterization="KQ",
        lr=0.1,
        num_steps=5000,
        init=mm.NormalInit(std=1.0, seeds=0),
    )
    rows = []
    for problem, W, frobenius, tokens in zip(
        problems, record.W, record.target, record.final_selection, strict=True
    ):
        nuclear = mm.solve_nuclear_svm(problem.tokens, problem.queries, tokens[0, 0]).W
        rows.append(
            [1 - mm.directional_divergence(U, W[0, 0], 2.0) for U in (nuclear, frobenius[0, 0])]
        )
    means = np.mean(rows, axis=0)
    nearer = sum(a > b for a, b in rows)
    print(
        f"K and Q trained on {len(problems)} problems: cosine {means[0]:.3f} to the nuclear-norm"
        f" solution, {means[1]:.3f} to the Frobenius one; nearer to the first in {nearer}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer problems and steps")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    arguments = parser.parse_args()
    for section in arguments.only:
        start = time.perf_counter()
        print(f"== {section} ==")
        globals()[f"show_{section}"](arguments.quick)
        print(f"({time.perf_counter() - start:.1f} s)\n")


if __name__ == "__main__":
    main()
