# Procedures of the scripts in this directory.

# Joins two nodes. Each direction loses packets independently with the probability `loss`.
proc join_lossy {ns a b rate delay loss} {
    $ns duplex-link $a $b $rate $delay DropTail
    foreach {from to} [list $a $b $b $a] {
        $ns queue-limit $from $to 100000
        lose_packets $ns $from $to $loss
    }
}

# Adds independent losses to one direction of a link. Returns the error model.
proc lose_packets {ns from to loss} {
    set model [new ErrorModel]
    $model unit pkt
    $model set rate_ $loss
    $model ranvar [new RandomVariable/Uniform]
    $ns lossmodel $model $from $to
    return $model
}

# Makes a TFRC flow of packets of 1400 bytes over a path with this round-trip time in seconds.
# `average` is `ewma` or `wali`. Returns the sender, which the caller or an application starts.
proc make_tfrc {ns from to rtt average} {
    set tfrc [new Agent/TFRC]
    set sink [new Agent/TFRCSink]
    $tfrc set packetSize_ 1400
    $tfrc set fsize_ 1400
    $tfrc set useHeaders_ false
    # b = 2, as in Eq. (1) of the paper.
    $tfrc set bval_ 2
    # RTO = 4 RTT, as in Eq. (1) and RFC 5348. ns-2 would use TCP's time-out, which is shorter.
    $tfrc set minrto_ [expr 4 * $rtt]
    if {$average eq "ewma"} {
        $sink set algo_ 2
        $sink set history_ 0.5
        $tfrc set df_ 0.5
        $tfrc set ca_ 0
    } else {
        $sink set algo_ 1
        $tfrc set df_ 0.9
        $tfrc set ca_ 1
    }
    $ns attach-agent $from $tfrc
    $ns attach-agent $to $sink
    $ns connect $tfrc $sink
    return $tfrc
}
