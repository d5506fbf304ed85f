r"""Running stories, examining claims on their evidence, and keeping both.

    OUT/claims.json                          verdicts with all that led to them
    OUT/evidence/<story>-<digest>/           the arrays of each story
    OUT/evidence/.../parts/<number>/         while it runs: the parts that are done

All is written whole or not at all, so the same command resumes where it was stopped, even killed.
Apart from ``environment``, ``seconds`` and the checksum over them the same seed gives the same
``claims.json``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mirrormargin.arguments import check_choice, check_seed
from mirrormargin.claims.claim import Claim
from mirrormargin.claims.claims_file import describe_claim, read_claims, write_claims
from mirrormargin.claims.evidence import Evidence, read_evidence, write_evidence
from mirrormargin.claims.registry import CLAIMS, STORIES
from mirrormargin.claims.story import PROFILES, Story
from mirrormargin.claims.trainings import Trainings
from mirrormargin.claims.workers import PART, Part, run_parts
from mirrormargin.environment import describe_environment
from mirrormargin.errors import ClaimError, RunError
from mirrormargin.runs import RUN_FILE, hold_folder, read_run

__all__ = ["reproduce"]

MOST_SEED = 2**31 - 1  # times the stride between two seeds it still fits into 64 bits

Progress = Callable[[int, int, str], object]


def reproduce(
    claims: Sequence[Claim],
    out: str | Path,
    *,
    profile: str = "quick",
    seed: int = 0,
    workers: int = 1,
    fresh: bool = False,
    records: str | Path | None = None,
    train: bool = True,
    published: Sequence[str | Path] = (),
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run what the claims need, examine them, and write ``claims.json``.

    Args:
        claims: From :func:`mirrormargin.claims.find_claims`.
        out: A folder; evidence that is in it already is used, and claims of the same profile and
            seed that were judged there stay in ``claims.json``.
        profile: "quick", "full" or "paper": how many seeds, how many steps.
        seed: Shifts all seeds; 0 has the published ones.
        workers: Processes to use. With more than one the caller's main module must be importable.
        fresh: Whether to run again what the folder holds already.
        records: Folder with records of trainings on real data: what has one is not trained again.
            (The quick profile trains nothing: it examines the records that are stored.)
        train: Whether to train what has no record, for hours if need be.
        published: Two files of paper A's own models, of p = 1.1 and of p = 2: claims about weights
            and attention of ``imdb/paper-6`` are judged on these.
        progress: Called as ``progress(done, total, text)`` with numbers of parts.

    Returns:
        What was written to ``claims.json``.

    Raises:
        ClaimError: (a ValueError) If an argument is not as above.
        RunError: If the folder cannot be written, another command writes to it, or a worker died.
    """
    check_choice("profile", profile, PROFILES, error=ClaimError)
    seed = check_seed(seed, most=MOST_SEED, error=ClaimError)
    if not claims:
        raise ClaimError("there are no claims to reproduce: give at least one")
    if fresh and not train:
        raise ClaimError(
            "nothing may be trained, but all trainings are to be made again: leave out one of the"
            " two"
        )
    out = Path(out)
    if (out / RUN_FILE).exists():
        raise RunError(f"{out} is the folder of a run: choose another for claims")
    with hold_folder(out):
        trainings = Trainings(
            out,
            profile,
            None if records is None else Path(records),
            fresh,
            train,
            tuple(map(Path, published)),
        )
        return _reproduce(claims, out, profile, seed, workers, fresh, trainings, progress)


def _reproduce(
    claims: Sequence[Claim],
    out: Path,
    profile: str,
    seed: int,
    workers: int,
    fresh: bool,
    trainings: Trainings,
    progress: Progress | None,
) -> dict[str, Any]:
    needed = {claim.experiment for claim in claims}
    stories = {name: story for name, story in STORIES.items() if name in needed}
    run_now = [story for story in stories.values() if story.run is not None]
    settings = {story.name: story.choose_settings(profile, seed) for story in run_now}
    folders = {story.name: story.name_folder(out, profile, seed) for story in run_now}
    if fresh:
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)
    _collect(run_now, settings, folders, workers, progress)
    evidence: dict[str, Evidence | None] = {
        name: read_evidence(folders[name])
        if story.run is not None
        else trainings.find_evidence(story, progress)
        for name, story in stories.items()
    }
    judged = _add_earlier(claims, out, profile, seed, evidence, folders, trainings)
    for name, found in evidence.items():
        if name not in folders and found is not None:  # a report draws what is in the folder
            folders[name] = STORIES[name].name_folder(out, profile, seed)
            write_evidence(folders[name], found)
    rows = []
    for claim in judged:
        row = describe_claim(claim, evidence[claim.experiment])
        folder = folders.get(claim.experiment)
        row["evidence"] = None if folder is None else folder.relative_to(out).as_posix()
        row["command"] = f"mirrormargin reproduce {claim.id} --profile {profile} --seed {seed}"
        rows.append(row)
    document = {
        "profile": profile,
        "seed": seed,
        "claims": rows,
        "environment": describe_environment(),
        "seconds": {name: found.seconds for name, found in evidence.items() if found is not None},
    }
    return write_claims(out, document)


def _add_earlier(
    claims: Sequence[Claim],
    out: Path,
    profile: str,
    seed: int,
    evidence: dict[str, Evidence | None],
    folders: dict[str, Path],
    trainings: Trainings,
) -> list[Claim]:
    """The claims, and those that were judged here before and whose evidence is still there."""
    earlier = set()
    with suppress(RunError):  # there is none, or it is damaged: then it is written again
        document = read_claims(out)
        if (document.get("profile"), document.get("seed")) == (profile, seed):
            earlier = {row["id"] for row in document["claims"]}
    kept = {claim.id for claim in claims}
    for claim in CLAIMS:
        if claim.id not in earlier - kept:
            continue
        story = STORIES[claim.experiment]
        if story.name not in evidence:
            folder = story.name_folder(out, profile, seed)
            if story.run is None:
                evidence[story.name] = trainings.without_training().find_evidence(story)
            elif _is_there(lambda folder=folder: read_evidence(folder)):
                evidence[story.name], folders[story.name] = read_evidence(folder), folder
            else:
                continue
        kept.add(claim.id)
    others = [claim for claim in claims if claim not in CLAIMS]
    return [claim for claim in CLAIMS if claim.id in kept] + others


def _collect(
    stories: Sequence[Story],
    settings: dict[str, dict[str, Any]],
    folders: dict[str, Path],
    workers: int,
    progress: Progress | None,
) -> None:
    """Run the parts that are missing, and join those of each story when it has them all."""
    missing: dict[str, list[Part]] = {}
    total = 0
    for story in _order(stories):
        chosen, folder = settings[story.name], folders[story.name]
        parts = [
            Part(story.name, chosen, part, folder / "parts" / str(index))
            for index, part in enumerate(story.split(chosen))
        ]
        total += len(parts)
        if not _is_there(lambda folder=folder: read_evidence(folder)):
            missing[story.name] = [
                part
                for part in parts
                if not _is_there(lambda part=part: read_run(part.folder, PART))
            ]
        else:  # killed after the joining
            shutil.rmtree(folder / "parts", ignore_errors=True)
    done = total - sum(map(len, missing.values()))

    def finish(name: str) -> None:
        story, chosen, folder = STORIES[name], settings[name], folders[name]
        count = len(story.split(chosen))
        parts = [read_run(folder / "parts" / str(index), PART) for index in range(count)]
        seconds = round(sum(document["seconds"] for document, _ in parts), 2)
        arrays = story.join([arrays for _, arrays in parts])
        write_evidence(folder, Evidence(name, chosen, arrays, seconds=seconds))
        shutil.rmtree(folder / "parts", ignore_errors=True)

    def report(part: Part) -> None:
        nonlocal done
        done += 1
        left = missing[part.experiment]
        left.remove(part)
        if not left:
            finish(part.experiment)
        if progress is not None:
            progress(done, total, part.experiment)

    for name, left in missing.items():
        if not left:  # killed between the last part and the joining
            finish(name)
    if progress is not None:
        progress(done, total, "")
    waiting = [part for left in missing.values() for part in left]
    # The first part compiles, and others of its story would wait for it: they come last.
    alike = [part for part in waiting[1:] if part.experiment == waiting[0].experiment]
    run_parts([part for part in waiting if part not in alike] + alike, workers, report)


def _order(stories: Sequence[Story]) -> list[Story]:
    """The first story compiles the training loop; next come those that run without it."""
    return [*stories[:1], *sorted(stories[1:], key=lambda story: not story.early)]


def _is_there(read: Callable[[], object]) -> bool:
    """Whether a folder can be read; what is damaged is run again."""
    try:
        read()
    except RunError:
        return False
    return True
