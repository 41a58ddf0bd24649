"""Predict, then measure: keep what a learner expected and show it beside what came. Never graded."""

from __future__ import annotations

_predictions: dict[str, object] = {}


def predict(name: str, value: object = None, unit: str = "") -> None:
    """Record what you expect. ``value`` left at ``...`` or None counts as no prediction yet."""
    if value is None or value is ...:
        _predictions.pop(name, None)
        print(f"{name}: no prediction yet. Write a number; a wrong one teaches more than none.")
        return
    _predictions[name] = value
    print(f"{name}: your prediction is {value}{' ' + unit if unit else ''}")


def reveal(name: str, measured: object, unit: str = "") -> None:
    """Show a measurement beside the prediction made for it."""
    unit = f" {unit}" if unit else ""
    mine = _predictions.get(name)
    if mine is None:
        print(f"{name}: measured {_short(measured)}{unit} (you made no prediction)")
        return
    ratio = ""
    if isinstance(mine, (int, float)) and isinstance(measured, (int, float)) and measured and mine:
        apart = max(mine / measured, measured / mine)
        ratio = ": exactly" if apart == 1 else f", {apart:.3g} x apart"
    print(f"{name}: you said {_short(mine)}{unit}, measured {_short(measured)}{unit}{ratio}")


def _short(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
