"""The files that data sets are read from: names below a data folder, sizes and digests.

A data set has one layout or more, and any that is complete will do: the compact one first, then
what :mod:`mirrormargin.data.official` makes of the official archives.
"""

from __future__ import annotations

from mirrormargin.data.verified import Source

__all__ = ["LAYOUTS", "VOCABULARY", "Layout"]

Layout = tuple[Source, ...]

VOCABULARY = Source(
    "wordpiece/vocab.txt",
    231_508,
    "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
)

IMDB: tuple[Layout, ...] = (
    (
        Source(
            "imdb/imdb_train.jsonl.xz",
            9_140_212,
            "dd6cc42d67dea97b6b3de864cec6625cb240f457640e3560d3652a7c995ab4dc",
        ),
        Source(
            "imdb/imdb_test.jsonl.xz",
            8_906_564,
            "077501001f2333f405fba21dcd512fc95ea06ff247ab2f4e2aba5e4bfc546715",
        ),
    ),
    (
        Source(
            "imdb/imdb_train.jsonl",
            35_006_238,
            "eb570cb455549ac1d2c98f61e5954e0d9af310d60b2459b20d3891b521a8627e",
        ),
        Source(
            "imdb/imdb_test.jsonl",
            34_224_569,
            "82000eac69e774e316228247853e4cde8a5f2c41efaf09ebd2388c9cf2689e31",
        ),
    ),
)

SST2: tuple[Layout, ...] = (
    (
        Source(
            "sst2/sst2_train.jsonl.xz",
            533_520,
            "ca22cf9127ab0e380675adc92e170cf8c3bfe96219f872dbb56a4bb0f3486c18",
        ),
        Source(
            "sst2/sst2_dev.jsonl.xz",
            35_980,
            "ab66a7781a5610414ff808e21d9ee459bb8e797d5916f2839c3fc51db17c1f9f",
        ),
    ),
    # Digests of what the official archive gives are not published: rows are counted instead.
    (Source("sst2/sst2_train.jsonl"), Source("sst2/sst2_dev.jsonl")),
)

MNLI_SUBSET: tuple[Layout, ...] = (
    (
        Source(
            "multinli/mnli_train_subset.jsonl.xz",
            2_240_168,
            "783651a2dd76f96304445458d537f5faef6b50b5d97bba57feaf0db5e7ba8a8c",
        ),
        Source(
            "multinli/mnli_dev_matched.jsonl.xz",
            335_840,
            "624dff301cc2b2293b7572ef8a7eda5fd77a87d88f473109747e083d48e03963",
        ),
    ),
)

CIVIL_SUBSET: tuple[Layout, ...] = (
    (
        Source(
            "civilcomments/civilcomments_toxic_subset.jsonl.xz",
            426_756,
            "6274674ebe1a1705c0f42611aeca4bd29919e069283f8de480414b7406a396b2",
        ),
    ),
)

MNIST: tuple[Layout, ...] = (
    (
        Source(
            "mnist/train-images-idx3-ubyte.gz",
            9_912_422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        Source(
            "mnist/train-labels-idx1-ubyte.gz",
            28_881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        Source(
            "mnist/t10k-images-idx3-ubyte.gz",
            1_648_877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        Source(
            "mnist/t10k-labels-idx1-ubyte.gz",
            4_542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
)

CIFAR10: tuple[Layout, ...] = (
    (
        Source(
            "cifar10/data_batch_1.webp",
            17_069_444,
            "c0ea61c56e790f3e7dbc12816b4c44572ce6e8414a9e3978ab9a84eb4f22ed14",
        ),
        Source(
            "cifar10/data_batch_2.webp",
            17_113_178,
            "0dcef6764d6293ea381e0e3aab0408d8ae56d3f1f420feb3b698f8ad3ba28a37",
        ),
        Source(
            "cifar10/data_batch_3.webp",
            17_119_734,
            "5caa607e7e1c5f5ee87940df842ed58d28b6f20d2038e119237c95d20abcbee1",
        ),
        Source(
            "cifar10/data_batch_4.webp",
            17_092_680,
            "4cb41bfc6e58464621aa276caae56198603d2c7db88d1f5684a6590311af0fc4",
        ),
        Source(
            "cifar10/data_batch_5.webp",
            17_074_580,
            "b2cbe3a1c8118260378886e22a7091c8fb2d4cb9d73e5de6a9b03df9c67c7d9c",
        ),
        Source(
            "cifar10/test_batch.webp",
            17_102_920,
            "840e458bd58b7aff80d24dfdc6324439ba6f172df799f1dcab25b3177019e6a6",
        ),
        Source(
            "cifar10/labels.npz",
            30_572,
            "5f356ab68c6bbe75090fc17447a5492bfcb6ce2a3a780f9d4daf3de29b949c6b",
        ),
    ),
    # The official binary version; these digests are of the same pixels and labels.
    (
        Source(
            "cifar10/data_batch_1.bin",
            30_730_000,
            "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        ),
        Source(
            "cifar10/data_batch_2.bin",
            30_730_000,
            "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        ),
        Source(
            "cifar10/data_batch_3.bin",
            30_730_000,
            "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        ),
        Source(
            "cifar10/data_batch_4.bin",
            30_730_000,
            "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        ),
        Source(
            "cifar10/data_batch_5.bin",
            30_730_000,
            "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        ),
        Source(
            "cifar10/test_batch.bin",
            30_730_000,
            "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        ),
    ),
)

# In the order in which the reader of each data set takes its files.
LAYOUTS: dict[str, tuple[Layout, ...]] = {
    "imdb": IMDB,
    "sst2": SST2,
    "mnli-subset": MNLI_SUBSET,
    "mnli": ((Source("multinli/mnli_train.jsonl"), Source("multinli/mnli_dev_matched.jsonl")),),
    "civil-subset": CIVIL_SUBSET,
    "civil": (
        (
            Source("civilcomments/civil_train.jsonl"),
            Source("civilcomments/civil_validation.jsonl"),
            Source("civilcomments/civil_test.jsonl"),
        ),
    ),
    "mnist": MNIST,
    "cifar10": CIFAR10,
}
