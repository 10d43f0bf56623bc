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
    /// The rate at which a receiver receives whole packets. In overlays: messages that the daemon
    /// hands to its client, with the headers of a datagram.
    ReceivedRate: Endpoint, RATE, Interval, "received rate";
    /// The number of packets that a receiver received.
    ReceivedPackets: Endpoint, PACKETS, Count, "received packets";
    /// The rate that the protocol aims at.
    TargetRate: Endpoint, RATE, Level, "target rate";
    /// The rate of arriving packets, as the receiver itself averages it.
    ReportedRate: Endpoint, RATE, Level, "rate as the receiver sees it";
    /// The round-trip time, as the protocol averages it (with TCP its sender).
    Rtt: Endpoint, TIME, Level, "round-trip time, averaged";
    /// Each measurement of the round-trip time.
    RttSample: Endpoint, TIME, Sample, "round-trip time, each";
    /// The loss event probability, as WEBRC's receiver estimates it (LOSSP).
    LossProbability: Endpoint, NUMBER, Level, "loss event probability";
    /// The number of loss events that an endpoint counts.
    LossEvents: Endpoint, NUMBER, Count, "loss events";
    /// The congestion window: with TCP of the sender that sends to the receiver, with ACP, as for
    /// the following observables, of the receiver itself. Use the sender's name for that of ACP's
    /// sender.
    Cwnd: Endpoint, PACKETS, Level, "congestion window";
    /// The number of retransmission time-outs of the same endpoint.
    Timeouts: Endpoint, NUMBER, Count, "retransmission time-outs";
    /// The number of packets that the same endpoint has sent again.
    Retransmissions: Endpoint, PACKETS, Count, "retransmissions";
    /// With TCP, CBR, ACP, SIM, RLM, RLC, FLID-DL and WEBRC, the share of the packets to the
    /// receiver that do not arrive, see docs/scenarios.md#lost-packets; no value in an interval
    /// without packets.
    Loss: Endpoint, NUMBER, Share, "loss";
    /// With ACP and overlays, the rate of the data that the application takes, without headers.
    Goodput: Endpoint, RATE, Interval, "goodput";
    /// With ACP and overlays, the number of frames or messages that the application takes.
    DeliveredFrames: Endpoint, PACKETS, Count, "frames delivered";
    /// With ACP, the number of frames that were dropped because the receive buffer was full.
    Overflows: Endpoint, NUMBER, Count, "frames without room";
    /// With ACP, the number of connections that failed.
    Failures: Endpoint, NUMBER, Count, "connections failed";
    /// With ACP, the number of members that the switches gave up.
    MemberFailures: Sender, NUMBER, Count, "members failed";
    /// With TFMCC, the number of reports that arrive at the sender in a round, without those of the
    /// limiting receiver.
    Reports: Sender, PACKETS, Sample, "feedback packets in a round";
    /// With overlays, the time of each message from when its sender had it ready until the
    /// application takes it.
    Latency: Endpoint, TIME, Sample, "latency";
    /// With overlays, the rate of the data that the daemon takes from each sending client, without
    /// headers. Each client has a value of its own, which `combine` combines.
    SentRate: Clients, RATE, Interval, "sent rate";
    /// With overlays, the maximum number of messages that wait at the daemon of A for the link
    /// `A-B` (`overlay/A-B` if several overlays have it); 0 if none has come.
    OverlayQueue: OverlayLink, PACKETS, Interval, "messages waiting";
    /// With overlays, the rate of their own control messages as whole packets, without the
    /// acknowledgements of streams.
    ControlRate: Link, RATE, Interval, "control traffic";
    /// With overlays, the rate of all groups together, at each report of the daemon at the node to
    /// the daemon of the session's sender. There is no value while the daemon knows no limit.
    AcceptableRate: Reporter, RATE, Level, "acceptable rate";
    /// With overlays, the total rate that the daemon of the session's sender allows its clients for
    /// the group.
    AllowedRate: Group, RATE, Level, "allowed rate";
    /// With overlays, the number of members of the session's group that the daemon at the node
    /// knows of, while it has any itself.
    Members: Reporter, NUMBER, Level, "members";
    /// With overlays, the number of times that a member of the session's group began to pause its
    /// senders, missed a message or was evicted.
    SlowMembers: Group, NUMBER, Count, "slow members";
    /// The number of joins of channels.
    Joins: Endpoint, NUMBER, Count, "joins";
    /// The number of channels that the receiver has joined.
    Channels: Endpoint, NUMBER, Level, "channels joined";
    /// The exit code of a command, from its end on: 128 and the signal's number if a signal ended
    /// it.
    ExitCode: Sender, NUMBER, Level, "exit code";
    /// The rate at which a link delivers packets.
    LinkRate: Link, RATE, Interval, "rate";
    /// The rate at which a link delivers, divided by the link's rate, or by the average rate of one
    /// whose rate varies: see `capacity`.
    Utilisation: Link, NUMBER, Interval, "utilisation";
    /// The rate at which a link could deliver packets of 1,500 bytes. It varies with a trace or a
    /// shape. With a token bucket it is the sustained rate.
    Capacity: Link, RATE, Interval, "capacity";
    /// The number of packets that a link delivered.
    DeliveredPackets: Link, PACKETS, Count, "packets delivered";
    /// The number of packets that the link's queue dropped. Of TCP, CBR and ACP: packets to the
    /// receiver that any queue dropped, see docs/scenarios.md#lost-packets. If a link and a session
    /// have the same name, the link is meant.
    Drops: LinkOrEndpoint, PACKETS, Count, "packets dropped";
    /// The number of packets lost on the link, or by a cut.
    Losses: Link, PACKETS, Count, "packets lost";
    /// The number of packets that a link's queue marked.
    Marks: Link, PACKETS, Count, "packets marked";
    /// The number of packets that wait, at the end of each interval.
    Queue: Link, PACKETS, Interval, "queue";
    /// The mean number of packets that wait in each interval, weighted by time. It is exact, not
    /// sampled, whatever the length of the interval.
    MeanQueue: Link, PACKETS, Interval, "mean queue";
    /// The rate of delivered packets of each multicast channel.
    ChannelRate: Link, RATE, Interval, "rate";
    /// With SIM, the cumulative rate at which the sender sends each group and all groups below it.
    GroupRate: Sender, RATE, Level, "rate of a group and those below it";
    /// The efficiency E(t) of section IV-A of SIM's paper: the rate that each receives over the
    /// lowest rate of a link on the path to it, averaged over the receivers that are present. Its
    /// `mean` over time and its `spread` are what the paper calls average efficiency and deviation.
    Efficiency: Audience, NUMBER, Interval, "efficiency";
    /// The instability I(t) of section IV-A of SIM's paper: changes of groups in an interval, for
    /// each receiver that is present. Changes of several groups at one instant count as one; a
    /// start counts as a change from none, and a stop as a change to none. Use `bin` = the
    /// round-trip time.
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
    ///
    /// Name: interval.
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
    ///
    /// Name: receivers.
    Endpoint,
    /// All receivers of a session together.
    ///
    /// Name: receivers, together.
    Audience,
    /// The sender of a session, with its switches or aggregators.
    ///
    /// Name: sessions.
    Sender,
    /// A link.
    ///
    /// Name: links.
    Link,
    /// A link or, if no link has the name, an endpoint of a session.
    ///
    /// Name: links, receivers.
    LinkOrEndpoint,
    /// The sending clients of a session, each by itself.
    ///
    /// Name: sessions.
    Clients,
    /// The group of a session in its overlay.
    ///
    /// Name: sessions.
    Group,
    /// A daemon that reports something about a session's group.
    ///
    /// Name: `session/node`.
    Reporter,
    /// A link between two daemons of an overlay.
    ///
    /// Name: links of overlays.
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
    /// The sum of the values; not of levels.
    Total,
    /// The median of the values, as `quantile` with 0.5.
    Median,
    /// A quantile of the values: of levels the lowest value such that it or a lower value holds for
    /// that share of the time; otherwise linear between two values.
    Quantile,
    /// The smallest value.
    Min,
    /// The largest value.
    Max,
    /// The last value.
    Last,
    /// The standard deviation of the values; of levels weighted by time.
    Spread,
    /// The standard deviation of the values over their mean.
    Variation,
    /// The time from the beginning of the window until a value is at least the level.
    TimeToRise,
    /// The time from the beginning of the window until a value is at most the level.
    TimeToFall,
    /// The longest time in which the value was 0, in whole intervals; not of levels and samples.
    LongestSilence,
    /// Pearson's coefficient of correlation with the measure's `against`.
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
    /// Jain's fairness index of the numbers: 1 if all are equal.
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
