# Runs ns-2's TFRC on the path from RON45 to Zikit1 of scenarios/xp-6.toml and prints the time that
# its allowed rate takes to fall to the rate of Eq. (1) after losses have begun:
#
#     average seed fall_s
#
#     ns scripts/ns2/xp-6.tcl SEED AVERAGE
#
# AVERAGE is `ewma` or `wali`, as in xp-8.tcl. In the scenario, a member without losses so far joins
# a group that sends at the rate of RON35. Here, the application sends at that rate over a path
# without losses, until they begin. The first interval then has about as many packets as Eq. (1)
# assigns to this rate.

if {$argc != 2} {
    puts stderr "usage: ns xp-6.tcl SEED ewma|wali"
    exit 2
}
lassign $argv seed average
source [file join [file dirname [info script]] path.tcl]

# The rate of Eq. (1) in bit/s, for packets of 1400 bytes.
proc equation {rtt p} {
    set timeouts [expr 4 * min(1, sqrt(27 * 2 * $p / 8)) * $p * (1 + 32 * $p * $p)]
    return [expr 1400 * 8 / ($rtt * (sqrt(2 * 2 * $p / 3) + $timeouts))]
}

set rtt 0.21399
set loss 0.0267
set before [equation 0.0598 0.0485]
set after [equation $rtt $loss]

set ns [new Simulator]
ns-random $seed
set ron45 [$ns node]
set zikit1 [$ns node]
$ns duplex-link $ron45 $zikit1 100e6 [expr $rtt / 2] DropTail
$ns queue-limit $ron45 $zikit1 100000
set there [lose_packets $ns $ron45 $zikit1 0]
set back [lose_packets $ns $zikit1 $ron45 0]

set tfrc [make_tfrc $ns $ron45 $zikit1 $rtt $average]
# The sender waits for data of the application.
$tfrc set SndrType_ 1
set cbr [new Application/Traffic/CBR]
$cbr set packetSize_ 1400
$cbr set rate_ $before
$cbr attach-agent $tfrc
$ns at 0.0 "$cbr start"

# The losses begin at a random time, so that they are not in phase with the reports.
set begin [expr 2.0 + $seed % 97 / 97.0]
$ns at $begin {
    $there set rate_ $loss
    $back set rate_ $loss
    watch
}

# Prints the result once the allowed rate has fallen.
proc watch {} {
    global ns tfrc after average seed begin
    set elapsed [expr [$ns now] - $begin]
    if {[$tfrc set rate_] * 8 <= $after || $elapsed > 60} {
        puts "$average $seed [format %.2f $elapsed]"
        exit 0
    }
    $ns at [expr [$ns now] + 0.01] watch
}
$ns run
