"""A congestion control of one's own. `manyflow evaluate examples/evaluate_own.py` evaluates it by RFC 9743."""

import manyflow as mf


class Aimd(mf.Controller):
    """Slow start, then one segment more in each round-trip time, and 70 % of the window after a loss."""

    window = 10.0
    threshold = float("inf")

    def on_ack(self, moment: mf.Moment) -> None:
        if self.window < self.threshold:
            self.window += moment.acknowledged
        else:
            self.window += moment.acknowledged / self.window

    def on_loss(self, moment: mf.Moment) -> None:
        self.threshold = self.window = max(2.0, 0.7 * self.window)

    def on_timeout(self, moment: mf.Moment) -> None:
        self.threshold = max(2.0, self.window / 2)
        self.window = 1.0
