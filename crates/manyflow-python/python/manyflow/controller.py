"""Congestion controls of one's own, in place of TCP's."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Optional, Protocol

if TYPE_CHECKING:
    from ._native import Moment


class Control(Protocol):
    """What :meth:`manyflow.Scenario.with_controller` takes objects to have, whether or not they inherit from
    :class:`Controller`."""

    window: float

    def on_ack(self, moment: Moment, /) -> None: ...
    def on_loss(self, moment: Moment, /) -> None: ...
    def on_timeout(self, moment: Moment, /) -> None: ...


class Controller:
    """A base for controls. Each connection of each run has an object of its own.

    The sender finds losses by selective acknowledgements, and sends lost segments again. It asks the object how fast:
    after each call of a method it reads two attributes.

    Attributes:
        window: The number of segments that may be in the network; at least 1.
        rate: The maximum rate in bit/s, headers included, at which segments are spaced evenly; ``None`` if only the
            window limits the sender.
    """

    window: float = 2.0
    rate: Optional[float] = None

    #: The name in scenarios; by default that of the class.
    name: ClassVar[Optional[str]] = None

    def on_ack(self, moment: Moment, /) -> None:
        """Handles an acknowledgement of ``moment.acknowledged`` new segments."""

    def on_loss(self, moment: Moment, /) -> None:
        """Handles losses, or a mark (``moment.is_mark``): once for each window of data."""
        self.window /= 2

    def on_timeout(self, moment: Moment, /) -> None:
        """Handles the expiry of the retransmission timer: all segments in flight count as lost."""
        self.window = 1.0
