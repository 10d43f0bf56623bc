//! What can be observed in a run, and how it becomes a number.

use serde::Deserialize;

use super::quantity::Dimension;
use super::schema::MeasureTable;

/// What is observed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Observable {
    /// What a receiver receives, whole packets counted.
    ReceivedRate,
    /// Packets that a receiver received.
    ReceivedPackets,
    /// The rate that an endpoint aims at.
    TargetRate,
    /// The rate at which packets arrive as the receiver itself averages it.
    ReportedRate,
    /// The round-trip time as an endpoint averages it.
    Rtt,
    /// Each measurement of the round-trip time.
    RttSample,
    /// The loss event probability as an endpoint estimates it.
    LossProbability,
    /// Loss events that an endpoint counts.
    LossEvents,
    /// The congestion window of a sender of TCP or ACP.
    Cwnd,
    /// Retransmission time-outs of a sender of TCP or ACP.
    Timeouts,
    /// Bits of the frames that the application at an end of ACP took.
    Goodput,
    /// Frames that it took.
    DeliveredFrames,
    /// Frames for which an end of ACP had no room.
    Overflows,
    /// Connections that are over before their time.
    Failures,
    /// Members that a session's switches have given up.
    MemberFailures,
    /// Feedback packets that arrive in a round at the sender of TFMCC, those of the limiting
    /// receiver not counted.
    Reports,
    /// How old the messages of an overlay are when a receiver takes them.
    Latency,
    /// Bits of the messages that an overlay takes from a sending client.
    SentRate,
    /// Messages that wait for a link of an overlay, at most.
    OverlayQueue,
    /// What an overlay's daemons say to each other for its own sake, over a link of the network.
    ControlRate,
    /// The rate that a daemon tells a session's sender.
    AcceptableRate,
    /// The rate at which the clients of a session's daemon may send to its group.
    AllowedRate,
    /// How many members a session's group has, as a daemon with members knows them.
    Members,
    /// How often a member of a session's group was too slow.
    SlowMembers,
    /// Channels joined.
    Joins,
    /// Channels that are joined at a time.
    Channels,
    /// What a link delivers.
    LinkRate,
    /// What a link delivers, over its rate.
    Utilisation,
    /// Packets that a link delivered.
    DeliveredPackets,
    /// Packets that a link's queue dropped.
    Drops,
    /// Packets that a link lost on the wire.
    Losses,
    /// Packets that a link's queue marked.
    Marks,
    /// Packets that wait at a link.
    Queue,
    /// What a link delivers on each multicast channel.
    ChannelRate,
    /// The rate at which a sender sends each group and all below it.
    GroupRate,
    /// What receivers receive over the lowest rate of a link on the path to each, in the mean over
    /// those that are there: E(t) of section IV-A of SIM's paper.
    Efficiency,
    /// How often a receiver changes its groups in an interval, in the mean over those that are
    /// there: I(t) of section IV-A.
    Instability,
}

/// What an observable belongs to.
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
    /// Whether it is something that only overlays have.
    pub(crate) fn is_in_overlays(self) -> bool {
        matches!(
            self,
            Subject::Clients | Subject::Group | Subject::Reporter | Subject::OverlayLink
        )
    }
}

impl Observable {
    /// What it belongs to.
    pub fn subject(self) -> Subject {
        match self {
            Observable::LinkRate
            | Observable::Utilisation
            | Observable::DeliveredPackets
            | Observable::Drops
            | Observable::Losses
            | Observable::Marks
            | Observable::Queue
            | Observable::ChannelRate
            | Observable::ControlRate => Subject::Link,
            Observable::SentRate => Subject::Clients,
            Observable::OverlayQueue => Subject::OverlayLink,
            Observable::AcceptableRate | Observable::Members => Subject::Reporter,
            Observable::AllowedRate | Observable::SlowMembers => Subject::Group,
            Observable::GroupRate | Observable::MemberFailures | Observable::Reports => {
                Subject::Sender
            }
            Observable::Efficiency | Observable::Instability => Subject::Audience,
            _ => Subject::Endpoint,
        }
    }

    /// Its unit.
    pub fn dimension(self) -> Dimension {
        match self {
            Observable::ReceivedRate
            | Observable::Goodput
            | Observable::TargetRate
            | Observable::ReportedRate
            | Observable::LinkRate
            | Observable::ChannelRate
            | Observable::GroupRate
            | Observable::SentRate
            | Observable::ControlRate
            | Observable::AcceptableRate
            | Observable::AllowedRate => Dimension::RATE,
            Observable::Rtt | Observable::RttSample | Observable::Latency => Dimension::TIME,
            Observable::ReceivedPackets
            | Observable::DeliveredFrames
            | Observable::DeliveredPackets
            | Observable::Drops
            | Observable::Losses
            | Observable::Marks
            | Observable::Cwnd
            | Observable::Queue
            | Observable::Reports
            | Observable::OverlayQueue => Dimension::PACKETS,
            _ => Dimension::NUMBER,
        }
    }

    /// Whether its values count something in each interval, so that their sum has a meaning.
    pub fn is_count(self) -> bool {
        matches!(
            self,
            Observable::ReceivedPackets
                | Observable::DeliveredFrames
                | Observable::Overflows
                | Observable::Failures
                | Observable::MemberFailures
                | Observable::SlowMembers
                | Observable::DeliveredPackets
                | Observable::Drops
                | Observable::Losses
                | Observable::Marks
                | Observable::Joins
                | Observable::LossEvents
                | Observable::Timeouts
        )
    }

    /// Whether its values stand at the times of events, instead of intervals.
    pub fn is_event(self) -> bool {
        matches!(
            self,
            Observable::TargetRate
                | Observable::ReportedRate
                | Observable::Rtt
                | Observable::RttSample
                | Observable::LossProbability
                | Observable::Cwnd
                | Observable::Channels
                | Observable::Reports
                | Observable::GroupRate
                | Observable::Latency
                | Observable::AcceptableRate
                | Observable::AllowedRate
                | Observable::Members
        )
    }

    /// Whether each value stands until the next one, so that statistics weigh it by the time for
    /// which it stands. Other values at the times of events are samples, which count alike.
    pub fn is_level(self) -> bool {
        self.is_event()
            && !matches!(
                self,
                Observable::RttSample | Observable::Latency | Observable::Reports
            )
    }

    /// Whether it is told by the events of endpoints; the network itself counts the rest.
    pub(crate) fn is_told(self) -> bool {
        let counted = matches!(self, Observable::ReceivedRate | Observable::ReceivedPackets);
        self.subject() == Subject::Endpoint && !counted
    }

    /// Its name in scenario files: `received-rate`.
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

    /// What it is called on an axis.
    pub fn label(self) -> &'static str {
        match self {
            Observable::ReceivedRate => "received rate",
            Observable::ReceivedPackets => "received packets",
            Observable::TargetRate => "target rate",
            Observable::ReportedRate => "rate as the receiver sees it",
            Observable::Rtt => "round-trip time, averaged",
            Observable::RttSample => "round-trip time, each",
            Observable::LossProbability => "loss event probability",
            Observable::LossEvents => "loss events",
            Observable::Cwnd => "congestion window",
            Observable::Timeouts => "retransmission time-outs",
            Observable::Goodput => "goodput",
            Observable::DeliveredFrames => "frames delivered",
            Observable::Overflows => "frames without room",
            Observable::Failures => "connections failed",
            Observable::MemberFailures => "members failed",
            Observable::Reports => "feedback packets in a round",
            Observable::Latency => "latency",
            Observable::SentRate => "sent rate",
            Observable::OverlayQueue => "messages waiting",
            Observable::ControlRate => "control traffic",
            Observable::AcceptableRate => "acceptable rate",
            Observable::AllowedRate => "allowed rate",
            Observable::Members => "members",
            Observable::SlowMembers => "slow members",
            Observable::Joins => "joins",
            Observable::Channels => "channels joined",
            Observable::LinkRate => "rate",
            Observable::Utilisation => "utilisation",
            Observable::DeliveredPackets => "packets delivered",
            Observable::Drops => "packets dropped",
            Observable::Losses => "packets lost",
            Observable::Marks => "packets marked",
            Observable::Queue => "queue",
            Observable::ChannelRate => "rate",
            Observable::GroupRate => "rate of a group and those below it",
            Observable::Efficiency => "efficiency",
            Observable::Instability => "changes of groups",
        }
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
