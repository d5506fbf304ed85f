"""Named configurations: what the paper says, and models that can be built."""

import pytest

from mirrormargin.data import DATA_SETS
from mirrormargin.errors import TrainingError
from mirrormargin.training.config import ImageModel, TextModel
from mirrormargin.training.configurations import CONFIGURATIONS, find_configuration


def test_name_is_data_set_and_size():
    for name, config in CONFIGURATIONS.items():
        assert name == config.name
        data = name.split("/")[0]
        assert config.data.name in (data, f"{data}-sentences")
        assert config.data.name in DATA_SETS


@pytest.mark.parametrize(("layers", "lr"), [(3, 8e-4), (4, 6e-4), (6, 1e-3)])
def test_text_models_of_the_paper_are_as_published(layers, lr):
    config = find_configuration(f"imdb/paper-{layers}")
    assert config.model == TextModel(384, layers, layers, dropout=0.2, embedding_dropout=0.0)
    assert (config.optimizer.name, config.optimizer.lr, config.optimizer.p) == (
        "MirrorDescent",
        lr,
        1.1,
    )
    assert (config.reduction, config.schedule, config.warmup) == ("sum", "constant", 0.0)
    assert config.data.vocab_size is None


def test_vision_model_of_the_paper_is_as_published():
    model = find_configuration("cifar10/paper").model
    assert isinstance(model, ImageModel)
    assert (model.patch, model.width, model.num_layers, model.num_heads) == (4, 512, 6, 8)
    assert (model.hidden, model.upscale, model.dropout) == (512, 48, 0.1)
    assert (model.attention_dropout, model.hidden_dropout) == (0.0, 0.1)


@pytest.mark.parametrize("task", ["sst2", "mrpc", "rte", "cola"])
def test_tasks_of_glue_take_a_few_hundred_steps(task):
    config = find_configuration(f"{task}/minilm")
    num_train = {"sst2": 6_400, "mrpc": 3_368, "rte": 2_080, "cola": 7_684}[task]
    assert 200 <= config.epochs * config.count_epoch_steps(num_train) <= 600
    assert config.batch_size == 32
    assert config.warmup > 0
    assert config.schedule != "constant"


def test_none_looks_at_test_data_while_training_unless_it_is_asked_to():
    assert not any(config.paper_protocol for config in CONFIGURATIONS.values())


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(TrainingError, match=r"'imdb/huge': there are imdb/paper-3.*digits/tiny"):
        find_configuration("imdb/huge")
