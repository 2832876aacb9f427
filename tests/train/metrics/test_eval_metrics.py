"""What a user notices of the metrics: they are those of plain definitions, by face and by video."""

from __future__ import annotations

import math
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch
from facefeed.pipeline.errors import UsageError
from facefeed.train.metrics.eval_metrics import EvalMetrics
from facefeed.train.metrics.plots import confusion_plot, roc_plot
from matplotlib.mathtext import MathTextParser

CLASSES = ("real", "fake")


def auc(scores: list[float], positive: list[bool]) -> float:
    """The share of (positive, negative) pairs in the right order; a tie is half."""
    pairs = [
        (score, other)
        for (score, is_positive), (other, is_other_positive) in product(zip(scores, positive, strict=True), repeat=2)
        if is_positive and not is_other_positive
    ]
    return sum((score > other) + 0.5 * (score == other) for score, other in pairs) / len(pairs)


def softmax(logits: torch.Tensor) -> np.ndarray[Any, Any]:
    raised = np.exp(logits.double().numpy())
    return raised / raised.sum(1, keepdims=True)


def scored(
    logits: torch.Tensor, labels: Any, *rest: Any, classes: tuple[str, ...] = CLASSES, **more: Any
) -> EvalMetrics:
    scores = EvalMetrics(classes)
    scores.add(logits, torch.as_tensor(labels), *rest, **more)
    return scores


@pytest.fixture(scope="module")
def predictions() -> tuple[torch.Tensor, torch.Tensor, list[str], list[str | None]]:
    """Logits in eighths, so that there are ties, and exact ones; eight videos, and three ways of faking."""
    generator = torch.Generator().manual_seed(0)
    of_video = torch.randint(0, 8, (120,), generator=generator)
    labels = (of_video >= 3).long()
    logits = (torch.randn(120, 2, generator=generator) * 16).round() / 8
    logits[:, 1] += labels
    methods = [None if video < 3 else ("swap", "talk", "blend")[int(video) % 3] for video in of_video]
    return logits, labels, [f"video {int(video)}" for video in of_video], methods


def test_metrics_of_faces_are_those_of_their_definitions(predictions: Any) -> None:
    logits, labels, videos, methods = predictions
    metrics = scored(logits, labels, videos, methods).result()
    p, truth = softmax(logits), labels.numpy()
    right = p.argmax(1) == truth
    assert metrics["auc"] == pytest.approx(auc(p[:, 1].round(12).tolist(), (truth == 1).tolist()), abs=1e-6)
    assert metrics["log_loss"] == pytest.approx(-np.log(p[np.arange(120), truth]).mean())
    assert metrics["accuracy"] == pytest.approx(right.mean())
    assert metrics["accuracy_real"] == pytest.approx(right[truth == 0].mean())
    assert metrics["accuracy_fake"] == pytest.approx(right[truth == 1].mean())
    for method in ("swap", "talk", "blend"):
        of_method = np.array([face_method == method for face_method in methods])
        assert metrics[f"accuracy_method_{method}"] == pytest.approx(right[of_method].mean())


def test_real_moments_of_videos_that_are_fake_in_part_are_not_counted_as_made_by_the_method() -> None:
    says_real = torch.tensor([[1.0, 0.0]]).repeat(8, 1)
    methods = [*["swap"] * 4, None, "voice", "talk", "voice"]
    metrics = scored(says_real, [0, 0, 0, 1, 0, 0, 1, 0], methods=methods).result()
    assert metrics["accuracy_method_swap"] == metrics["accuracy_method_talk"] == 0.0
    assert metrics["accuracy_method_voice"] == 1.0  # of these the sound alone is fake


def test_metrics_of_videos_are_those_of_the_mean_probability_of_their_faces(predictions: Any) -> None:
    logits, labels, videos, methods = predictions
    scores = scored(logits, labels, videos, methods)
    p, metrics = softmax(logits), scores.result()
    names = sorted(set(videos))
    mean = np.array([p[[video == name for video in videos]].mean(0) for name in names])
    truth = np.array([labels[videos.index(name)] for name in names])
    assert len(scores.videos) == 8
    assert metrics["video_auc"] == pytest.approx(auc(mean[:, 1].tolist(), (truth == 1).tolist()), abs=1e-6)
    assert metrics["video_log_loss"] == pytest.approx(-np.log(mean[np.arange(8), truth]).mean())
    assert metrics["video_accuracy"] == pytest.approx((mean.argmax(1) == truth).mean())


def test_a_video_that_is_fake_in_part_is_one_video_and_judged_once_as_real_and_once_as_fake() -> None:
    logits = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    scores = scored(logits, [0, 1, 0, 1], ["a", "a", "b", None])
    assert scores.num_videos == 2
    assert scores.result()["video_accuracy"] == pytest.approx(2 / 3)


def test_with_more_classes_the_auc_is_the_mean_of_each_against_all_others() -> None:
    generator = torch.Generator().manual_seed(1)
    logits, labels = torch.randn(60, 3, generator=generator), torch.randint(0, 3, (60,), generator=generator)
    scores = scored(logits, labels, classes=("real", "swap", "talk"))
    p, truth = softmax(logits), labels.numpy()
    expected = np.mean([auc(p[:, number].tolist(), (truth == number).tolist()) for number in range(3)])
    assert scores.result()["auc"] == pytest.approx(expected, abs=1e-6)
    assert scores.faces.confusion.tolist() == [
        [int(((truth == label) & (p.argmax(1) == predicted)).sum()) for predicted in range(3)] for label in range(3)
    ]
    two_classes = scored(logits[truth != 2], labels[truth != 2], classes=("real", "swap", "talk"))
    remaining = p[truth != 2], truth[truth != 2]
    expected = np.mean(
        [auc(remaining[0][:, number].tolist(), (remaining[1] == number).tolist()) for number in range(2)]
    )
    assert two_classes.result()["auc"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_auc_of_videos_with_equal_predictions_is_a_half_whatever_their_numbers_of_faces(num_classes: int) -> None:
    classes = ("real", "swap", "talk")[:num_classes]
    for logits in torch.randn(20, num_classes, generator=torch.Generator().manual_seed(3)):
        scores = EvalMetrics(classes)
        for faces in range(1, 41):
            label = min(faces // 14, num_classes - 1)
            scores.add(logits.repeat(faces, 1), torch.full((faces,), label), [f"{faces} faces"] * faces)
        assert scores.result()["auc"] == scores.result()["video_auc"] == 0.5


def test_videos_of_the_same_predictions_in_another_order_and_number_tie() -> None:
    generator = torch.Generator().manual_seed(4)
    of_a_video = torch.randn(7, 2, generator=generator)
    scores = EvalMetrics(CLASSES)
    for times in range(1, 31):
        order = torch.randperm(7 * times, generator=generator)
        scores.add(
            of_a_video.repeat(times, 1)[order], torch.full((7 * times,), times % 2), [f"{times} times"] * (7 * times)
        )
    assert scores.result()["video_auc"] == 0.5


def test_faces_tie_whose_logits_differ_by_a_common_offset_alone() -> None:
    offsets = torch.arange(64) / 8
    logits = torch.stack([offsets, offsets + 0.375], dim=1)
    assert scored(logits, (offsets > 3).long()).result()["auc"] == 0.5


def test_scores_that_differ_by_a_rounding_of_float32_logits_are_told_apart() -> None:
    logits = [torch.tensor(0.7)]
    for _ in range(7):
        logits.append(torch.nextafter(logits[-1], torch.tensor(1.0)))
    labels = [0, 0, 1, 0, 1, 1, 0, 1]
    expected = auc([float(logit) for logit in logits], [label == 1 for label in labels])
    assert scored(torch.stack(logits)[:, None], labels).result()["auc"] == pytest.approx(expected, abs=1e-6)


def test_infinite_scores_are_ranked_below_and_above_all_others_and_tie_among_themselves() -> None:
    infinity = math.inf
    logits = torch.tensor([[0.0, -infinity], [0.0, -infinity], [0.0, 3.0], [-infinity, 0.0], [-infinity, 0.0]])
    labels = [0, 1, 0, 0, 1]
    expected = auc([-9, -9, 3, 9, 9], [label == 1 for label in labels])
    assert scored(logits, labels).result()["auc"] == pytest.approx(expected, abs=1e-6)


def test_one_logit_is_that_of_the_second_class_against_the_first(predictions: Any) -> None:
    logits, labels, videos, methods = predictions
    metrics = scored(logits[:, 1:] - logits[:, :1], labels, videos, methods).result()
    assert metrics == pytest.approx(scored(logits, labels, videos, methods).result(), rel=1e-5)


def test_batches_and_their_order_make_no_difference(predictions: Any) -> None:
    logits, labels, videos, methods = predictions
    order = torch.randperm(120, generator=torch.Generator().manual_seed(2))
    parts = EvalMetrics(CLASSES)
    for places in order.split(7):
        names, ways = [videos[place] for place in places], [methods[place] for place in places]
        parts.add(logits[places], labels[places], names, ways)
    assert parts.result() == pytest.approx(scored(logits, labels, videos, methods).result())


def test_what_is_predicted_with_certainty_is_still_ranked_and_its_loss_is_finite() -> None:
    logits = torch.tensor([[0.0, 50.0], [0.0, 60.0], [0.0, 900.0], [0.0, 70.0]])
    metrics = scored(logits, [0, 1, 1, 0], ["a", "b", "b", "c"]).result()
    assert metrics["auc"] == 0.75
    assert metrics["log_loss"] == pytest.approx(30.0)
    assert metrics["video_log_loss"] == pytest.approx((50 + 70 + 0) / 3)


def test_unknown_labels_take_no_part_and_no_faces_have_no_metrics() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [9.0, 0.0]])
    metrics = scored(logits, [0, 1, -1], ["a", "b", "c"], ["x", "y", "z"]).result()
    assert metrics == scored(logits[:2], [0, 1], ["a", "b"], ["x", "y"]).result()
    assert scored(logits, [-1, -1, -1]).result() == EvalMetrics(CLASSES).result() == {}


def test_an_auc_of_one_class_and_metrics_of_videos_that_nobody_knows_are_left_out() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    assert set(scored(logits, [1, 1]).result()) == {"log_loss", "accuracy", "accuracy_fake"}
    assert scored(logits, [1, 1]).faces.auc is None
    assert "video_accuracy" in scored(logits, [1, 1], ["a", None]).result()
    assert len(scored(logits, [1, 1], ["a", None]).videos) == 1


def test_metrics_of_predictions_that_are_nan_are_nan_with_a_note_and_those_of_others_are_numbers(
    predictions: Any,
) -> None:
    logits, labels, videos, methods = predictions
    spoilt = logits.clone()
    spoilt[[method == "swap" for method in methods]] = math.nan
    scores = scored(spoilt, labels, videos, methods)
    metrics, expected = scores.result(), scored(logits, labels, videos, methods).result()
    assert metrics.keys() == expected.keys()
    numbers = {name for name, value in metrics.items() if not math.isnan(value)}
    assert numbers == {"accuracy_real", "accuracy_method_talk", "accuracy_method_blend"}
    assert {name: metrics[name] for name in numbers} == {name: expected[name] for name in numbers}
    num_swaps = methods.count("swap")
    assert f"the predictions for {num_swaps} of 120 faces are NaN" in (scores.nan_note() or "")
    assert scores.faces.confusion.sum() == 120 - num_swaps
    assert scored(logits, labels).nan_note() is None


def test_an_auc_of_one_class_is_left_out_also_where_a_prediction_is_nan() -> None:
    metrics = scored(torch.tensor([[2.0, 0.0], [math.nan, 1.0]]), [1, 1]).result()
    assert metrics.keys() == {"log_loss", "accuracy", "accuracy_fake"}
    assert all(map(math.isnan, metrics.values()))


def test_a_probability_of_0_in_all_faces_of_a_video_is_a_number() -> None:
    metrics = scored(torch.tensor([[0.0, -math.inf], [0.0, 1.0]]), [0, 1], ["a", "b"]).result()
    assert metrics["video_auc"] == metrics["video_accuracy"] == 1.0


def test_a_face_that_came_twice_counts_once_where_its_row_is_known(predictions: Any) -> None:
    logits, labels, videos, methods = predictions
    rows = torch.arange(120)
    twice = scored(logits, labels, videos, methods, rows=rows)
    twice.add(logits[:9], labels[:9], videos[:9], methods[:9], rows=rows[:9])
    assert twice.result() == pytest.approx(scored(logits, labels, videos, methods).result())
    assert len(twice.faces) == 120


def test_a_curve_runs_from_corner_to_corner_and_never_back(predictions: Any) -> None:
    logits, labels, *_ = predictions
    curve = scored(logits, labels).faces.roc(1)
    assert curve is not None
    for rates in (curve.fpr.tolist(), curve.tpr.tolist()):
        assert (rates[0], rates[-1]) == (0, 1)
        assert all(rate <= next_rate for rate, next_rate in pairwise(rates))


def test_labels_that_no_class_has_and_mixed_ones_are_refused() -> None:
    with pytest.raises(UsageError, match="label 2, 2 logits: there are 2 classes, real, fake"):
        scored(torch.zeros(2, 2), [0, 2])
    with pytest.raises(UsageError, match="labels are mixed"):
        scored(torch.zeros(2, 2), [0.5, 1.0])


@pytest.mark.parametrize("classes", [("real_$", "fake_$"), ("$x$", "$y", "z$^$")])
def test_names_with_dollar_signs_are_drawn_as_text_and_not_as_formulas(
    classes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a name is read as a formula")

    monkeypatch.setattr(MathTextParser, "parse", refuse)
    metrics = scored(torch.eye(len(classes)), list(range(len(classes))), classes=classes)
    for plot in (roc_plot(metrics), confusion_plot(metrics)):
        assert plot is not None
        plot.draw_without_rendering()
