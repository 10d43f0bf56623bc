# Multicast CBR, 4 Mbit/s of 1000-byte packets, down a binary tree. Arguments: leaves, seconds.
set leaves [lindex $argv 0]
set seconds [lindex $argv 1]
set ns [new Simulator -multicast on]
set nodes [expr 2 * $leaves - 1]
for {set i 0} {$i < $nodes} {incr i} { set n($i) [$ns node] }
for {set i 1} {$i < $nodes} {incr i} {
    $ns duplex-link $n([expr ($i - 1) / 2]) $n($i) 100Mb 1ms DropTail
}
$ns mrtproto DM
set group [Node allocaddr]
set udp [new Agent/UDP]
$udp set packetSize_ 1000
$ns attach-agent $n(0) $udp
$udp set dst_addr_ $group
$udp set dst_port_ 0
set cbr [new Application/Traffic/CBR]
$cbr set packetSize_ 1000
$cbr set rate_ 4Mb
$cbr attach-agent $udp
for {set i [expr $leaves - 1]} {$i < $nodes} {incr i} {
    set sink [new Agent/Null]
    $ns attach-agent $n($i) $sink
    $ns at 0.1 "$n($i) join-group $sink $group"
}
$ns at 0.5 "$cbr start"
$ns at [expr 0.5 + $seconds] "exit 0"
$ns run
