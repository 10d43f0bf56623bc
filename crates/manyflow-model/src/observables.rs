//! The quantities that a run can record, and the statistics that make numbers of them.

use serde::{Deserialize, Serialize};

use crate::quantity::Dimension;

/// Defines the observables, one row each: name, subject, unit, kind and label.
macro_rules! observables {
    ($($(#[$doc:meta])* $name:ident: $subject:ident, $unit:ident, $kind:ident, $label:literal;)*) => {
        /// A quantity that a run records.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
    /// The rate at which a receiver receives packets, including headers.
    ReceivedRate: Endpoint, RATE, Interval, "received rate";
    /// The number of packets that a receiver received.
    ReceivedPackets: Endpoint, PACKETS, Count, "received packets";
    /// The sending rate that an endpoint aims at.
    TargetRate: Endpoint, RATE, Level, "target rate";
    /// The average rate of arriving packets, as the receiver itself computes it.
    ReportedRate: Endpoint, RATE, Level, "rate as the receiver sees it";
    /// The average round-trip time, as an endpoint computes it.
    Rtt: Endpoint, TIME, Level, "round-trip time, averaged";
    /// Each measurement of the round-trip time.
    RttSample: Endpoint, TIME, Sample, "round-trip time, each";
    /// The loss event probability, as an endpoint estimates it.
    LossProbability: Endpoint, NUMBER, Level, "loss event probability";
    /// The number of loss events that an endpoint counts.
    LossEvents: Endpoint, NUMBER, Count, "loss events";
    /// The congestion window of a TCP or ACP sender.
    Cwnd: Endpoint, PACKETS, Level, "congestion window";
    /// The number of retransmission time-outs of a TCP or ACP sender.
    Timeouts: Endpoint, NUMBER, Count, "retransmission time-outs";
    /// The number of packets that a TCP or ACP sender has sent again.
    Retransmissions: Endpoint, PACKETS, Count, "retransmissions";
    /// The share of the packets to a receiver that do not arrive: queues drop them, wires lose
    /// them, or a link is cut. Receivers of SIM find gaps in the groups that they have joined.
    Loss: Endpoint, NUMBER, Share, "loss";
    /// The rate of the frames or messages that an application reads, counting payloads only.
    Goodput: Endpoint, RATE, Interval, "goodput";
    /// The number of frames or messages that an application reads.
    DeliveredFrames: Endpoint, PACKETS, Count, "frames delivered";
    /// The number of frames for which an end of an ACP connection had no room.
    Overflows: Endpoint, NUMBER, Count, "frames without room";
    /// The number of connections that failed.
    Failures: Endpoint, NUMBER, Count, "connections failed";
    /// The number of members that a session's switches have declared failed.
    MemberFailures: Sender, NUMBER, Count, "members failed";
    /// The number of feedback packets that arrive at a TFMCC sender in a round, except
    /// those of the current limiting receiver.
    Reports: Sender, PACKETS, Sample, "feedback packets in a round";
    /// The age of an overlay's messages when a receiver reads them.
    Latency: Endpoint, TIME, Sample, "latency";
    /// The rate of the messages that an overlay accepts from a sending client.
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
    /// The number of times that a member of a session's group was too slow.
    SlowMembers: Group, NUMBER, Count, "slow members";
    /// The number of times that an endpoint joined a channel.
    Joins: Endpoint, NUMBER, Count, "joins";
    /// The number of channels that an endpoint has joined.
    Channels: Endpoint, NUMBER, Level, "channels joined";
    /// The exit code of a command, from its end on.
    ExitCode: Sender, NUMBER, Level, "exit code";
    /// The rate at which a link delivers packets.
    LinkRate: Link, RATE, Interval, "rate";
    /// The rate at which a link delivers, divided by the link's rate.
    Utilisation: Link, NUMBER, Interval, "utilisation";
    /// The number of packets that a link delivered.
    DeliveredPackets: Link, PACKETS, Count, "packets delivered";
    /// The number of packets that a link's queue dropped, or that any queue dropped on the way to a
    /// receiver.
    Drops: LinkOrEndpoint, PACKETS, Count, "packets dropped";
    /// The number of packets that a link lost on the wire.
    Losses: Link, PACKETS, Count, "packets lost";
    /// The number of packets that a link's queue marked.
    Marks: Link, PACKETS, Count, "packets marked";
    /// The number of packets that wait at a link.
    Queue: Link, PACKETS, Interval, "queue";
    /// The mean number of packets that wait at a link, weighted by time.
    MeanQueue: Link, PACKETS, Interval, "mean queue";
    /// The rate at which a link delivers each multicast channel.
    ChannelRate: Link, RATE, Interval, "rate";
    /// The cumulative rate of each group: the rate at which a sender sends the group and
    /// all groups below it.
    GroupRate: Sender, RATE, Level, "rate of a group and those below it";
    /// The efficiency E(t) of section IV-A of SIM's paper: received rates divided by the lowest
    /// link rate on each receiver's path, averaged over the receivers that are present.
    Efficiency: Audience, NUMBER, Interval, "efficiency";
    /// The instability I(t) of section IV-A of SIM's paper: changes of groups in an
    /// interval, averaged over the receivers that are present.
    Instability: Audience, NUMBER, Interval, "changes of groups";
}

/// The properties of an observable.
struct Row {
    subject: Subject,
    unit: Dimension,
    kind: Kind,
    /// The label of an axis that shows the observable.
    label: &'static str,
}

/// The relation of an observable's values to time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// A value for each interval that cannot be summed over intervals, such as a rate.
    Interval,
    /// A share for each interval: the number of some packets over the number of all. The mean
    /// over intervals weights it by the number of all packets.
    Share,
    /// A count for each interval.
    Count,
    /// A value at the time of an event, which holds until the next event. Statistics weight
    /// it by the time for which it holds.
    Level,
    /// A value at the time of an event. All samples have the same weight.
    Sample,
}

/// The kind of thing that an observable describes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An endpoint of a session.
    Endpoint,
    /// All receivers of a session together.
    Audience,
    /// The sender of a session, with its switches or aggregators.
    Sender,
    /// A link.
    Link,
    /// A link or, if no link has the name, an endpoint of a session.
    LinkOrEndpoint,
    /// The sending clients of a session, each by itself.
    Clients,
    /// The group of a session in its overlay.
    Group,
    /// A daemon that reports something about a session's group.
    Reporter,
    /// A link between two daemons of an overlay.
    OverlayLink,
}

impl Subject {
    /// Returns whether only overlays have this kind of thing.
    pub fn is_in_overlays(self) -> bool {
        matches!(
            self,
            Subject::Clients | Subject::Group | Subject::Reporter | Subject::OverlayLink
        )
    }
}

impl Observable {
    /// Returns the kind of thing that the observable describes.
    pub fn subject(self) -> Subject {
        self.row().subject
    }

    /// Returns the unit of the values.
    pub fn dimension(self) -> Dimension {
        self.row().unit
    }

    /// Returns whether the values count something in each interval, so that their sum has a
    /// meaning.
    pub fn is_count(self) -> bool {
        self.row().kind == Kind::Count
    }

    /// Returns whether the values belong to the times of events, not to intervals.
    pub fn is_event(self) -> bool {
        matches!(self.row().kind, Kind::Level | Kind::Sample)
    }

    /// Returns whether each value holds until the next one. Statistics weight it by the
    /// time for which it holds.
    pub fn is_level(self) -> bool {
        self.row().kind == Kind::Level
    }

    /// Returns whether only events of endpoints report the observable. The network itself counts
    /// the others.
    pub fn is_reported(self) -> bool {
        let counted = matches!(
            self,
            Observable::ReceivedRate | Observable::ReceivedPackets | Observable::Loss
        );
        self.subject() == Subject::Endpoint && !counted
    }

    /// Returns whether the network counts the packets to an endpoint that are dropped or lost.
    pub fn is_of_lost_packets(self) -> bool {
        matches!(self, Observable::Drops | Observable::Loss)
    }

    /// Returns the name in scenario files, such as `received-rate`.
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

    /// Returns the label of an axis that shows the observable.
    pub fn label(self) -> &'static str {
        self.row().label
    }
}

/// The statistic that makes one number of the values over time.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Statistic {
    /// The mean of the values.
    Mean,
    /// The sum of the values.
    Total,
    /// The median of the values.
    Median,
    /// A quantile of the values.
    Quantile,
    /// The smallest value.
    Min,
    /// The largest value.
    Max,
    /// The last value.
    Last,
    /// The standard deviation of the values.
    Spread,
    /// The standard deviation of the values over their mean.
    Variation,
    /// The time from the beginning of the window until a value is at least the level.
    TimeToRise,
    /// The time from the beginning of the window until a value is at most the level.
    TimeToFall,
    /// The longest time in which the value was 0.
    LongestSilence,
    /// Pearson's correlation with the series in `against`.
    Correlation,
}

impl Statistic {
    /// Returns the unit of the statistic of values in the unit `of`.
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

/// The way in which the numbers of several receivers or links become one.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Combination {
    /// The mean of the numbers.
    #[default]
    Mean,
    /// The sum of the numbers.
    Sum,
    /// The smallest number.
    Min,
    /// The largest number.
    Max,
    /// The median of the numbers.
    Median,
    /// The standard deviation of the numbers over their mean.
    Variation,
    /// Jain's fairness index of the numbers.
    Jain,
}

impl Combination {
    /// Returns the unit of the combination of numbers in the unit `of`.
    pub fn dimension(self, of: Dimension) -> Dimension {
        match self {
            Combination::Variation | Combination::Jain => Dimension::NUMBER,
            _ => of,
        }
    }
}
