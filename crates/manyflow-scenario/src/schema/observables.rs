//! The quantities that a run can record, and how they become numbers.

use serde::Deserialize;

use crate::quantity::Dimension;
use crate::schema::MeasureTable;

/// Defines the observables, one row each: name, subject, unit, kind and label.
macro_rules! observables {
    ($($(#[$doc:meta])* $name:ident: $subject:ident, $unit:ident, $kind:ident, $label:literal;)*) => {
        /// A quantity that a run records.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        #[non_exhaustive]
        pub enum Observable {
            $($(#[$doc])* $name,)*
        }

        impl Observable {
            fn row(self) -> Row {
                match self {
                    $(Observable::$name => Row {
                        subject: Subject::$subject,
                        unit: Dimension::$unit,
                        kind: Kind::$kind,
                        label: $label,
                    },)*
                }
            }
        }
    };
}

observables! {
    /// The rate at which a receiver receives, with whole packets counted.
    ReceivedRate: Endpoint, RATE, Interval, "received rate";
    /// Packets that a receiver received.
    ReceivedPackets: Endpoint, PACKETS, Count, "received packets";
    /// The rate that an endpoint aims at.
    TargetRate: Endpoint, RATE, Level, "target rate";
    /// The average rate of arriving packets, as the receiver itself computes it.
    ReportedRate: Endpoint, RATE, Level, "rate as the receiver sees it";
    /// The average round-trip time, as an endpoint computes it.
    Rtt: Endpoint, TIME, Level, "round-trip time, averaged";
    /// Each measurement of the round-trip time.
    RttSample: Endpoint, TIME, Sample, "round-trip time, each";
    /// The loss event probability, as an endpoint estimates it.
    LossProbability: Endpoint, NUMBER, Level, "loss event probability";
    /// Loss events that an endpoint counts.
    LossEvents: Endpoint, NUMBER, Count, "loss events";
    /// The congestion window of a TCP or ACP sender.
    Cwnd: Endpoint, PACKETS, Level, "congestion window";
    /// Retransmission time-outs of a TCP or ACP sender.
    Timeouts: Endpoint, NUMBER, Count, "retransmission time-outs";
    /// The rate of the frames or messages that an application reads, payloads only.
    Goodput: Endpoint, RATE, Interval, "goodput";
    /// Frames or messages that an application reads.
    DeliveredFrames: Endpoint, PACKETS, Count, "frames delivered";
    /// Frames for which an end of an ACP connection had no room.
    Overflows: Endpoint, NUMBER, Count, "frames without room";
    /// Connections that ended before their time.
    Failures: Endpoint, NUMBER, Count, "connections failed";
    /// Members that a session's switches have given up.
    MemberFailures: Sender, NUMBER, Count, "members failed";
    /// Feedback packets that arrive at a TFMCC sender in a round, without those of the current
    /// limiting receiver.
    Reports: Sender, PACKETS, Sample, "feedback packets in a round";
    /// The age of an overlay's messages when a receiver reads them.
    Latency: Endpoint, TIME, Sample, "latency";
    /// The rate of the messages that an overlay takes from a sending client.
    SentRate: Clients, RATE, Interval, "sent rate";
    /// The maximum number of messages that wait for a link of an overlay.
    OverlayQueue: OverlayLink, PACKETS, Interval, "messages waiting";
    /// The rate of control traffic between an overlay's daemons on a link of the network.
    ControlRate: Link, RATE, Interval, "control traffic";
    /// The rate that a daemon announces to a session's sender.
    AcceptableRate: Reporter, RATE, Level, "acceptable rate";
    /// The rate at which the clients of a session's daemon may send to its group.
    AllowedRate: Group, RATE, Level, "allowed rate";
    /// The number of members of a session's group, as a daemon with members knows it.
    Members: Reporter, NUMBER, Level, "members";
    /// How often a member of a session's group was too slow.
    SlowMembers: Group, NUMBER, Count, "slow members";
    /// Channels joined.
    Joins: Endpoint, NUMBER, Count, "joins";
    /// The number of channels that are joined at a time.
    Channels: Endpoint, NUMBER, Level, "channels joined";
    /// The rate at which a link delivers.
    LinkRate: Link, RATE, Interval, "rate";
    /// The rate at which a link delivers, divided by the link's rate.
    Utilisation: Link, NUMBER, Interval, "utilisation";
    /// Packets that a link delivered.
    DeliveredPackets: Link, PACKETS, Count, "packets delivered";
    /// Packets that a link's queue dropped.
    Drops: Link, PACKETS, Count, "packets dropped";
    /// Packets that a link lost on the wire.
    Losses: Link, PACKETS, Count, "packets lost";
    /// Packets that a link's queue marked.
    Marks: Link, PACKETS, Count, "packets marked";
    /// Packets that wait at a link.
    Queue: Link, PACKETS, Interval, "queue";
    /// The rate at which a link delivers each multicast channel.
    ChannelRate: Link, RATE, Interval, "rate";
    /// The rate at which a sender sends each group and all groups below it.
    GroupRate: Sender, RATE, Level, "rate of a group and those below it";
    /// Received rates divided by the lowest link rate on each receiver's path, averaged over the
    /// receivers that are present: E(t) of section IV-A of SIM's paper.
    Efficiency: Audience, NUMBER, Interval, "efficiency";
    /// Changes of groups in an interval, averaged over the receivers that are present: I(t) of
    /// section IV-A of SIM's paper.
    Instability: Audience, NUMBER, Interval, "changes of groups";
}

/// The properties of an observable.
struct Row {
    subject: Subject,
    unit: Dimension,
    kind: Kind,
    /// Its name on an axis.
    label: &'static str,
}

/// How an observable's values stand in time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// A value for each interval that cannot be summed up over intervals, such as a rate.
    Interval,
    /// A count for each interval.
    Count,
    /// A value at the time of an event, which stands until the next one. Statistics weigh it by the
    /// time for which it stands.
    Level,
    /// A value at the time of an event, which counts as much as any other.
    Sample,
}

/// The kind of thing that an observable belongs to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A session's endpoints.
    Endpoint,
    /// A session's receivers, all together.
    Audience,
    /// A session's sender, and what else it has besides its receivers.
    Sender,
    /// A link.
    Link,
    /// A session's sending clients, each by itself.
    Clients,
    /// A session's group in its overlay.
    Group,
    /// A daemon that tells something of a session's group.
    Reporter,
    /// A link of an overlay.
    OverlayLink,
}

impl Subject {
    /// Returns whether only overlays have such things.
    pub(crate) fn is_in_overlays(self) -> bool {
        matches!(
            self,
            Subject::Clients | Subject::Group | Subject::Reporter | Subject::OverlayLink
        )
    }
}

impl Observable {
    /// Returns the kind of thing that the observable belongs to.
    pub fn subject(self) -> Subject {
        self.row().subject
    }

    /// Returns its unit.
    pub fn dimension(self) -> Dimension {
        self.row().unit
    }

    /// Returns whether its values count something in each interval, so that their sum has a
    /// meaning.
    pub fn is_count(self) -> bool {
        self.row().kind == Kind::Count
    }

    /// Returns whether its values stand at the times of events, instead of intervals.
    pub fn is_event(self) -> bool {
        matches!(self.row().kind, Kind::Level | Kind::Sample)
    }

    /// Returns whether each value stands until the next one, so that statistics weigh it by the
    /// time for which it stands.
    pub fn is_level(self) -> bool {
        self.row().kind == Kind::Level
    }

    /// Returns whether the events of endpoints report it. The network itself counts the others.
    pub(crate) fn is_told(self) -> bool {
        let counted = matches!(self, Observable::ReceivedRate | Observable::ReceivedPackets);
        self.subject() == Subject::Endpoint && !counted
    }

    /// Returns its name in scenario files, such as `received-rate`.
    pub fn name(self) -> String {
        let mut name = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_ascii_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.push(letter.to_ascii_lowercase());
        }
        name
    }

    /// Returns its name on an axis.
    pub fn label(self) -> &'static str {
        self.row().label
    }
}

/// How values over time become one number.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Statistic {
    /// Their mean.
    Mean,
    /// Their sum: how many in all.
    Total,
    /// Their median.
    Median,
    /// A quantile.
    Quantile,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The last.
    Last,
    /// Their standard deviation.
    Spread,
    /// Their standard deviation over their mean.
    Variation,
    /// The time from the beginning of the window until a value is at least the level.
    TimeToRise,
    /// The time from the beginning of the window until a value is at most the level.
    TimeToFall,
    /// The longest time without anything.
    LongestSilence,
    /// Pearson's correlation with what the measure is taken against.
    Correlation,
}

impl Statistic {
    /// The unit of the result.
    pub fn dimension(self, of: Dimension) -> Dimension {
        match self {
            Statistic::Variation | Statistic::Correlation => Dimension::NUMBER,
            Statistic::TimeToRise | Statistic::TimeToFall | Statistic::LongestSilence => {
                Dimension::TIME
            }
            _ => of,
        }
    }
}

/// How the numbers of several receivers or links become one.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Combination {
    /// Their mean.
    #[default]
    Mean,
    /// Their sum.
    Sum,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// Their median.
    Median,
    /// Their standard deviation over their mean.
    Variation,
    /// Jain's fairness index.
    Jain,
}

impl Combination {
    /// The unit of the result.
    pub fn dimension(self, of: Dimension) -> Dimension {
        match self {
            Combination::Variation | Combination::Jain => Dimension::NUMBER,
            _ => of,
        }
    }
}

impl MeasureTable {
    /// The unit of its number; that of a formula is not known here.
    pub(crate) fn dimension(&self) -> Dimension {
        let Some(what) = self.what else {
            return Dimension::NUMBER;
        };
        let statistic = self.statistic_or_default(what);
        self.combine
            .dimension(statistic.dimension(self.value_dimension(what)))
    }

    /// The unit of what the statistic is taken of: a ratio has none.
    pub(crate) fn value_dimension(&self, what: Observable) -> Dimension {
        match self.against {
            Some(_) => Dimension::NUMBER,
            None => what.dimension(),
        }
    }

    /// How its values over time become one number: counts by their sum, others by their mean,
    /// unless it says otherwise.
    pub(crate) fn statistic_or_default(&self, what: Observable) -> Statistic {
        let default = match what.is_count() {
            true => Statistic::Total,
            false => Statistic::Mean,
        };
        self.statistic.unwrap_or(default)
    }
}
