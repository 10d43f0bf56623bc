# Runs ns-2's TFRC beside ns-2's TCP on the path of scenarios/xp-8.toml: six cycles of 60 s alone
# and 60 s with a TCP connection. Prints one line for each cycle:
#
#     share tcp average seed cycle tfrc_kbps tcp_kbps ratio
#
#     ns scripts/ns2/xp-8.tcl SEED SHARE TCP AVERAGE
#
# SHARE is the share of Table 2's losses (1, 0.5 or 0.2). TCP is `newreno` or `sack1`. AVERAGE is
# the average of the loss intervals:
#
#   ewma   Eq. (2) of the many-to-many TFRC paper: weights of one half, for round-trip times as well
#   wali   RFC 5348: eight intervals, history discounting, and slower sending while queues grow
#   none   another TCP connection instead of TFRC, for comparison
#
# Both averages use b = 2 packets per acknowledgement and RTO = 4 RTT, as the paper's Eq. (1) does.

if {$argc != 4} {
    puts stderr "usage: ns xp-8.tcl SEED SHARE newreno|sack1 ewma|wali|none"
    exit 2
}
lassign $argv seed share variant average
source [file join [file dirname [info script]] path.tcl]

set ns [new Simulator]
ns-random $seed

# Zikit1 - RON0 - RON33 - RON45 - RON35, and a node for each receiver, so that their arrivals can be
# counted separately.
foreach name {zikit1 ron0 ron33 ron45 ron35 tfrc_end tcp_end} {
    set $name [$ns node]
}
set line 1e6
join_lossy $ns $zikit1 $ron0 $line 85.31ms [expr 0.0033 * $share]
join_lossy $ns $ron0 $ron33 100e6 32.84ms 0
join_lossy $ns $ron33 $ron45 100e6 3.08ms [expr 0.0082 * $share]
join_lossy $ns $ron45 $ron35 100e6 28.33ms [expr 0.0369 * $share]
foreach end [list $tfrc_end $tcp_end] {
    $ns duplex-link $ron35 $end 100e6 0ms DropTail
}
# The queue of the line: 200 ms, in bytes.
foreach {from to} [list $zikit1 $ron0 $ron0 $zikit1] {
    set queue [[$ns link $from $to] queue]
    $queue set queue_in_bytes_ true
    $queue set mean_pktsize_ 1400
    $queue set limit_ [expr int($line * 0.2 / 8 / 1400)]
}
set tfrc_monitor [$ns monitor-queue $ron35 $tfrc_end ""]
set tcp_monitor [$ns monitor-queue $ron35 $tcp_end ""]

proc start_tcp {tcp_end} {
    global ns zikit1 variant line
    if {$variant eq "sack1"} {
        set tcp [new Agent/TCP/Sack1]
        set sink [new Agent/TCPSink/Sack1/DelAck]
    } else {
        set tcp [new Agent/TCP/Newreno]
        set sink [new Agent/TCPSink/DelAck]
    }
    $tcp set packetSize_ 1360
    $tcp set window_ 10000
    $tcp set minrto_ 1.0
    $tcp set overhead_ [expr 1400 * 8 / $line]
    $ns attach-agent $zikit1 $tcp
    $ns attach-agent $tcp_end $sink
    $ns connect $tcp $sink
    set ftp [new Application/FTP]
    $ftp attach-agent $tcp
    $ftp start
    return $ftp
}

if {$average eq "none"} {
    $ns at 1.0 "start_tcp $tfrc_end"
} else {
    set tfrc [make_tfrc $ns $zikit1 $tfrc_end 0.29913 $average]
    $ns at 1.0 "$tfrc start"
}

proc begin_cycle {} {
    global tfrc_monitor tcp_monitor before ftp tcp_end
    set before [list [$tfrc_monitor set bdepartures_] [$tcp_monitor set bdepartures_]]
    set ftp [start_tcp $tcp_end]
}

proc end_cycle {cycle} {
    global tfrc_monitor tcp_monitor before ftp share variant average seed
    $ftp stop
    lassign $before tfrc tcp
    set tfrc [expr ([$tfrc_monitor set bdepartures_] - $tfrc) * 8 / 60e3]
    set tcp [expr ([$tcp_monitor set bdepartures_] - $tcp) * 8 / 60e3]
    set ratio [expr $tfrc / $tcp]
    puts "$share $variant $average $seed $cycle [format {%.1f %.1f %.3f} $tfrc $tcp $ratio]"
}

for {set cycle 1} {$cycle <= 6} {incr cycle} {
    set begin [expr 120 * $cycle - 60]
    $ns at $begin begin_cycle
    $ns at [expr $begin + 60] "end_cycle $cycle"
}
$ns at 720.001 {exit 0}
$ns run
