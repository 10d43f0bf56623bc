-- The fields and decoders of the overlay's frames, in the format of
-- manyflow-overlay/src/wire/mod.rs. Wireshark may load this file as a plugin, too; it registers
-- nothing.

local frames = {}

local DATA, CHANGE, WELCOME, PART, COST, REPORT, ROUND_TRIP, DATAGRAM, FEEDBACK = 1, 2, 3, 4, 5, 6, 7, 8, 9
local SUMMARY, REQUEST, RESENT, ANSWER, ACKNOWLEDGE, SEAL = 10, 11, 12, 13, 14, 15
local CONNECT, JOIN, LEAVE, SEND, TOOK, DISCONNECT, READY, DELIVER, VIEW, EVICTED = 16, 17, 18, 19, 20, 21, 22, 23, 24, 25
local SHARED, AGAIN = 28, 29
local ASKED, ANSWERED = 26, 27
local KINDS = {
    [DATA] = "Data", [CHANGE] = "Change", [WELCOME] = "Welcome", [PART] = "Part", [COST] = "Cost",
    [REPORT] = "Report", [ROUND_TRIP] = "RoundTrip", [DATAGRAM] = "Datagram", [FEEDBACK] = "Feedback",
    [SUMMARY] = "Summary", [REQUEST] = "Request", [RESENT] = "Resent", [ANSWER] = "Answer",
    [SHARED] = "Shared", [AGAIN] = "Again", [ACKNOWLEDGE] = "Acknowledge", [SEAL] = "Seal",
    [CONNECT] = "Connect", [JOIN] = "Join", [LEAVE] = "Leave",
    [SEND] = "Send", [TOOK] = "Took", [DISCONNECT] = "Disconnect", [READY] = "Ready",
    [DELIVER] = "Deliver", [VIEW] = "View", [EVICTED] = "Evicted",
    [ASKED] = "Asked", [ANSWERED] = "Answered",
}
local MEMBERS, PAUSED, LINK, ALIVE, COUNT, PROOF = 1, 2, 3, 4, 5, 6
local ITEMS = { [MEMBERS] = "members", [PAUSED] = "paused", [LINK] = "link", [ALIVE] = "alive", [COUNT] = "count", [PROOF] = "proof" }
local VERSION, FLOWS_MAX, PAYLOAD_BYTES_MAX = 1, 2, 65465

local function u16(name, label)
    return ProtoField.uint16("manyflow_overlay." .. name, label)
end
local function u32(name, label, shown)
    return ProtoField.uint32("manyflow_overlay." .. name, label, shown)
end
local function u64(name, label, shown)
    return ProtoField.uint64("manyflow_overlay." .. name, label, shown)
end
local f = {
    length = u16("length", "Length on the stream"),
    version = ProtoField.uint8("manyflow_overlay.version", "Version", base.DEC, nil, 0xe0),
    kind = ProtoField.uint8("manyflow_overlay.kind", "Kind", base.DEC, KINDS, 0x1f),
    flags = ProtoField.uint8("manyflow_overlay.flags", "Flags", base.HEX),
    repaired = ProtoField.bool("manyflow_overlay.repaired", "Repaired", 8, nil, 0x80),
    marked = ProtoField.bool("manyflow_overlay.marked", "Marked", 8, nil, 0x40),
    layered = ProtoField.bool("manyflow_overlay.layered", "The payload is in layers", 8, nil, 0x08),
    count = ProtoField.uint8("manyflow_overlay.count", "Links, groups or ranges", base.DEC, nil, 0x30),
    origin = u16("origin", "Origin"),
    priority = u16("priority", "Priority in percent"),
    reserved = u16("reserved", "Reserved"),
    group = u32("group", "Group", base.HEX),
    tree = u16("tree", "Version of the topology"),
    sequence = u64("sequence", "Sequence number"),
    sender = u32("sender", "Sender"),
    sent_us = u32("sent_us", "Sent at in us"),
    to = u16("to", "To daemon"),
    start = u64("start", "First guaranteed message"),
    expected_message = u64("expected_message", "Expected message"),
    next = u64("next", "Next message"),
    change = u32("change", "Change"),
    incarnation = u32("incarnation", "Incarnation"),
    index = u32("index", "Index of the part"),
    acknowledged_group = u32("acknowledged_group", "Acknowledged group", base.HEX),
    flow_expected = u32("flow_expected", "Expected message modulo 2^32"),
    queue = u16("queue", "Queue in 1/16 message"),
    rate = u32("rate", "Acceptable rate in bytes/s"),
    repaired_share = u16("repaired_share", "Repaired copies in 2^-16"),
    held_us = u32("held_us", "Held for us"),
    acknowledged = u64("acknowledged", "Acknowledged message"),
    received_bytes = u32("received_bytes", "Received bytes"),
    rtt_us = u32("rtt_us", "Round-trip time in us"),
    item = ProtoField.uint16("manyflow_overlay.item", "Item", base.DEC, ITEMS),
    members = u32("members", "Members"),
    since = u32("since", "Since change"),
    paused = u16("paused", "Paused"),
    weight = u32("weight", "Weight"),
    parts = u32("parts", "Parts that follow"),
    unused = u32("unused", "Unused", base.HEX),
    number = u32("number", "Number of the datagram"),
    expected = u32("expected", "Expected datagram"),
    begin = u32("missing.begin", "Missing from"),
    stop = u32("missing.end", "Missing up to, without"),
    asked_us = u32("asked_us", "Asked at in us"),
    waited_us = u32("waited_us", "The probe waited for us"),
    messages = u32("messages", "Messages read"),
    name = ProtoField.string("manyflow_overlay.name", "Name of the group"),
    payload = ProtoField.bytes("manyflow_overlay.payload", "Payload"),
    magic = ProtoField.bytes("manyflow_overlay.hello.magic", "Magic"),
    id = u16("hello.id", "Daemon"),
    own_incarnation = u32("hello.incarnation", "Incarnation"),
    dials = ProtoField.bool("manyflow_overlay.hello.dials", "Dials", 8, nil, 1),
    datagrams = ProtoField.bool("manyflow_overlay.hello.datagrams", "Links of datagrams", 8, nil, 2),
    hello_flags = ProtoField.uint8("manyflow_overlay.hello.flags", "Flags", base.HEX),
    name_length = ProtoField.uint8("manyflow_overlay.hello.name_length", "Length of a name"),
    overlay = ProtoField.string("manyflow_overlay.hello.overlay", "Overlay"),
    daemon = ProtoField.string("manyflow_overlay.hello.name", "Name"),
    resume_incarnation = u32("resume.incarnation", "Known incarnation of the other daemon"),
    received = u32("resume.received", "Next message expected"),
    port = u16("endpoint.port", "UDP port of this end"),
    link = u64("endpoint.number", "Number of packets to this end", base.HEX),
}
-- Takes a number that must be at least `lowest`.
local function at_least(reader, field, bytes, lowest, name)
    local taken = reader:take(field, bytes)
    if not taken then
        return nil
    end
    local number = taken
    if bytes == 6 then
        number = taken:range(0, 2):uint() * 2 ^ 32 + taken:range(2, 4):uint()
    end
    if number < lowest then
        reader:refuse("%s is %.0f: it must be at least %.0f", name, number, lowest)
    end
    return number
end

local function zero(reader, number)
    if number and number ~= 0 then
        reader:refuse("reserved bits are not zero")
    end
end

local function data(reader)
    reader:take_all({ { f.group, 4 }, { f.tree, 2 } })
    at_least(reader, f.sequence, 6, 1, "a sequence number")
    reader:take_all({ { f.sender, 4 }, { f.sent_us, 4 } })
end

local function resent(reader)
    data(reader)
    reader:take(f.to, 2)
    zero(reader, reader:take(f.reserved, 2))
end

local function welcome(reader)
    reader:take_all({ { f.group, 4 }, { f.tree, 2 } })
    local start = at_least(reader, f.start, 6, 1, "a welcome's first sequence number")
    reader:take(f.to, 2)
    at_least(reader, f.next, 6, start or 1, "a welcome's next sequence number")
    at_least(reader, f.change, 4, 1, "the number of a change")
end

local function answer(reader)
    reader:take_all({ { f.group, 4 }, { f.tree, 2 } })
    at_least(reader, f.expected_message, 6, 1, "an answer's expected sequence number")
    reader:take(f.to, 2)
    at_least(reader, f.next, 6, 1, "an answer's next sequence number")
    at_least(reader, f.change, 4, 1, "the number of a change")
end

local function acknowledge(reader, count)
    if count > FLOWS_MAX then
        return reader:refuse("%d acknowledged flows: there are at most %d", count, FLOWS_MAX)
    end
    reader:take_all({ { f.to, 2 }, { f.tree, 2 } })
    for _ = 1, count do
        reader:take(f.acknowledged_group, 4)
        at_least(reader, f.flow_expected, 4, 1, "an acknowledged flow's number")
    end
end

local function unused(reader, words)
    for _ = 1, words do
        zero(reader, reader:take(f.unused, 4))
    end
end

-- The two bytes behind the kind of an item, and the words of each kind.
local ITEM_DECODERS = {
    [MEMBERS] = function(reader)
        zero(reader, reader:take(f.reserved, 2))
        reader:take(f.group, 4)
        local members = reader:take(f.members, 4)
        reader:take(f.since, 4)
        return members and members > 0 and f.name
    end,
    [PAUSED] = function(reader)
        local paused = reader:take(f.paused, 2)
        if paused and paused > 1 then
            reader:refuse("reserved bits are not zero")
        end
        reader:take(f.group, 4)
        unused(reader, 2)
    end,
    [LINK] = function(reader)
        reader:take_all({ { f.to, 2 }, { f.weight, 4 }, { f.since, 4 } })
        unused(reader, 1)
    end,
    [ALIVE] = function(reader)
        zero(reader, reader:take(f.reserved, 2))
        unused(reader, 3)
    end,
    [COUNT] = function(reader)
        zero(reader, reader:take(f.reserved, 2))
        reader:take_all({ { f.parts, 4 }, { f.incarnation, 4 } })
        unused(reader, 1)
    end,
    [PROOF] = function(reader)
        zero(reader, reader:take(f.reserved, 2))
        unused(reader, 3)
        return f.payload
    end,
}

-- An item. Returns the field of what may follow.
local function item(reader)
    local kind = reader:take(f.item, 2)
    local decoder = ITEM_DECODERS[kind]
    if kind and not decoder then
        return reader:refuse("the kind of an item is %d: it must be 1 to 6", kind)
    end
    return decoder and decoder(reader)
end

local function cost(reader, count)
    reader:take(f.tree, 2)
    zero(reader, reader:take(f.reserved, 2))
    for _ = 1, count do
        reader:take_all({ { f.to, 2 }, { f.queue, 2 } })
    end
end

local function report(reader)
    reader:take_all({
        { f.group, 4 }, { f.rate, 4 }, { f.repaired_share, 2 }, { f.acknowledged, 6 }, { f.held_us, 4 },
        { f.received_bytes, 4 },
    })
end

-- The messages between daemons. Each decoder returns the field of what may follow the header.
local MESSAGES = {
    [DATA] = function(reader) data(reader) return f.payload end,
    [SHARED] = function(reader) data(reader) return f.payload end,
    [AGAIN] = function(reader) data(reader) end,
    [RESENT] = function(reader) resent(reader) return f.payload end,
    [WELCOME] = function(reader) welcome(reader) end,
    [ANSWER] = function(reader) answer(reader) end,
    [ACKNOWLEDGE] = function(reader, count) acknowledge(reader, count) end,
    [CHANGE] = function(reader)
        reader:take(f.incarnation, 4)
        at_least(reader, f.change, 4, 1, "the number of a change")
        return item(reader)
    end,
    [PART] = function(reader)
        at_least(reader, f.change, 4, 1, "the number of a change")
        reader:take(f.index, 4)
        return item(reader)
    end,
    [SUMMARY] = function(reader) reader:take_all({ { f.incarnation, 4 }, { f.change, 4 } }) end,
    [SEAL] = function(reader)
        reader:take(f.incarnation, 4)
        at_least(reader, f.change, 4, 1, "the number of a change")
        return f.payload
    end,
    [REQUEST] = function() end,
    [COST] = function(reader, count) cost(reader, count) end,
    [REPORT] = function(reader) report(reader) end,
    [ROUND_TRIP] = function(reader) reader:take(f.rtt_us, 4) end,
}

local function group(reader)
    reader:take(f.group, 4)
end

-- A client's message to one to four groups, each named once.
local function send(reader, count)
    local known = { [reader:take(f.group, 4) or -1] = true }
    reader:take(f.sent_us, 4)
    for _ = 1, count do
        local further = reader:take(f.group, 4)
        if further and known[further] then
            reader:refuse("a message's further group is %.0f: it must be another than those before", further)
        end
        known[further or -1] = true
    end
end

-- The frames between clients and daemons.
local CLIENTS = {
    [CONNECT] = function() end,
    [DISCONNECT] = function() end,
    [READY] = function() end,
    [JOIN] = function(reader) group(reader) return f.name end,
    [LEAVE] = group,
    [EVICTED] = group,
    [SEND] = function(reader, count) send(reader, count) return f.payload end,
    [TOOK] = function(reader) at_least(reader, f.messages, 4, 1, "the number of messages that were taken") end,
    [DELIVER] = function(reader) data(reader) return f.payload end,
    [VIEW] = function(reader) group(reader) reader:take(f.members, 4) end,
}

local function missing_ranges(reader, count)
    local expected, free = reader:take(f.expected, 4), 0
    for _ = 1, count do
        local begin, stop = reader:take(f.begin, 4), reader:take(f.stop, 4)
        if reader.refused then
            return
        end
        begin, stop = (begin - expected) % 2 ^ 32, (stop - expected) % 2 ^ 32
        if begin < free then
            reader:refuse("a missing range begins before the expected number or the end of the one before it")
        elseif stop <= begin or stop > 2 ^ 31 - 1 then
            reader:refuse("a missing range is empty, or ends 2^31 or more above the expected number")
        end
        free = stop
    end
end

-- The kinds of clients' messages, whose payload can be in layers.
local DATA_KINDS = { [DATA] = true, [SHARED] = true, [AGAIN] = true, [RESENT] = true, [SEND] = true, [DELIVER] = true }

-- The first word. Returns kind, flags, the number of links, groups or ranges, and the last 16 bits.
local function first(reader)
    local byte, flags, half = reader:peek(1), reader:peek(1, 1), reader:peek(2, 2)
    reader:show(f.version, 1)
    reader:take(f.kind, 1)
    if byte and math.floor(byte / 32) ~= VERSION then
        reader:refuse("version %d is not known: this is version %d", math.floor(byte / 32), VERSION)
    end
    local kind = byte and byte % 32
    local has_count = kind == COST or kind == ACKNOWLEDGE or kind == FEEDBACK or kind == SEND
    if MESSAGES[kind] then
        reader:show(f.repaired, 1)
        reader:show(f.marked, 1)
    end
    if has_count then
        reader:show(f.count, 1)
    end
    if DATA_KINDS[kind] then
        reader:show(f.layered, 1)
    end
    reader:take(f.flags, 1)
    local has_origin = MESSAGES[kind] or kind == DELIVER
    reader:take(kind == CONNECT and f.priority or has_origin and f.origin or f.reserved, 2)
    if reader.refused then
        return nil
    end
    local counted = math.floor(flags / 16) % 4
    local known = (MESSAGES[kind] and math.floor(flags / 64) * 64 or 0) + (has_count and 16 * counted or 0)
    reader.is_layered = DATA_KINDS[kind] and math.floor(flags / 8) % 2 == 1
    if reader.is_layered then
        known = known + 8
    end
    if flags ~= known or half ~= 0 and not has_origin and kind ~= CONNECT then
        reader:refuse("reserved bits are not zero")
    end
    return kind, counted, half
end

-- Checks the table of layers at the beginning of a payload, as `Layers::read` does.
local function check_layers(reader)
    local count, left = reader:peek(1), reader:left()
    if count and (count < 1 or count > 8) then
        return reader:refuse("a message has %d layers: it must have 1 to 8", count)
    end
    local least = 6 + 4 * (count or 0)
    if left < least then
        reader.is_short = true
        return reader:refuse("%d bytes are too few for the table of layers", left)
    elseif reader:peek(3, 1) == 0 then
        return reader:refuse("a message's purse is 0")
    end
    local whole, before = 0, nil
    for at = 6, least - 1, 4 do
        local bytes, dollars = reader:peek(2, at), reader:peek(2, at + 2)
        if bytes == 0 or dollars == 0 then
            return reader:refuse("a layer has no bytes or is worth nothing")
        elseif before and dollars * before[1] > before[2] * bytes then
            return reader:refuse("a byte of a layer is worth more than one of the layer before it")
        end
        whole, before = whole + bytes, { bytes, dollars }
    end
    least = least + reader:peek(2, 4)
    if left < least then
        reader.is_short = true
        return reader:refuse("%d bytes are too few for the kept bytes", left)
    elseif left > least + whole then
        return reader:refuse("%d bytes follow the last layer", left - least - whole)
    end
end

-- Checks and adds what follows a header.
local function trailing(reader, field)
    reader.payload_bytes = reader:left()
    if reader.is_layered and field and not reader.refused then
        check_layers(reader)
    end
    if reader.refused then
        return
    elseif reader:left() > 0 and not field then
        reader:refuse("%d bytes follow a header that has no payload", reader:left())
    elseif reader:left() > PAYLOAD_BYTES_MAX then
        reader:refuse("a payload of %d bytes is too long: at most %d", reader:left(), PAYLOAD_BYTES_MAX)
    else
        reader:rest(field)
    end
end

-- Decodes one message between daemons, up to the reader's end. Returns its kind.
local function message(reader, kind, count)
    local decoder = MESSAGES[kind]
    if not decoder then
        return reader:refuse("kind %d is not a message between daemons", kind)
    end
    trailing(reader, decoder(reader, count))
    return KINDS[kind]
end

local function client_frame(reader, kind, count, half)
    local decoder = CLIENTS[kind]
    if not decoder then
        return reader:refuse("kind %d is not known", kind)
    elseif kind == CONNECT and half == 0 then
        return reader:refuse("a client's priority in percent is 0: it must be at least 1")
    end
    trailing(reader, decoder(reader, count))
    return KINDS[kind]
end

local function feedback(reader, count)
    missing_ranges(reader, count)
    trailing(reader, nil)
    return KINDS[FEEDBACK]
end

-- A probe of a connection, or the answer to one.
local function delay(reader, kind)
    reader:take(kind == ASKED and f.asked_us or f.waited_us, 4)
    trailing(reader, nil)
    return KINDS[kind]
end

-- A numbered datagram with a message in it.
local function datagram(reader)
    reader:take(f.number, 4)
    local kind, count = first(reader)
    return kind and message(reader, kind, count)
end

-- Decodes a frame, as `Frame::decode` does. Returns its name.
local function frame(reader)
    local kind, count, half = first(reader)
    if not kind or reader.refused then
        return nil
    elseif kind == DATAGRAM then
        return datagram(reader)
    elseif kind == FEEDBACK then
        return feedback(reader, count)
    elseif kind >= CONNECT and kind <= EVICTED then
        return client_frame(reader, kind, count, half)
    end
    return message(reader, kind, count)
end

-- Decodes a frame on a stream: a message, feedback or a probe.
local function stream_frame(reader)
    local kind, count = first(reader)
    if not kind or reader.refused then
        return nil
    elseif kind == FEEDBACK then
        return feedback(reader, count)
    elseif kind == ASKED or kind == ANSWERED then
        return delay(reader, kind)
    end
    return message(reader, kind, count)
end

frames.fields = f
frames.CONNECT = CONNECT
frames.frame = frame
frames.stream_frame = stream_frame

-- The words behind the first word of each header on a stream, without those that are counted.
local WORDS = {
    [DATA] = 5, [SHARED] = 5, [AGAIN] = 5, [RESENT] = 6, [WELCOME] = 6, [ANSWER] = 6, [ACKNOWLEDGE] = 1, [CHANGE] = 6, [PART] = 6,
    [SUMMARY] = 2, [SEAL] = 2, [REQUEST] = 0, [COST] = 1, [REPORT] = 6, [ROUND_TRIP] = 1, [FEEDBACK] = 1,
    [ASKED] = 1, [ANSWERED] = 1,
}
local COUNTED_WORDS = { [ACKNOWLEDGE] = 2, [COST] = 1, [FEEDBACK] = 2 }

-- Returns whether the bytes of a frame on a stream are too few to refuse them: its header is not
-- complete, and the first word is valid.
function frames.is_undecided(reader)
    local byte, flags, half = reader:peek(1), reader:peek(1, 1), reader:peek(2, 2)
    if not half then
        return true
    end
    local kind, count = byte % 32, math.floor(flags / 16) % 4
    local is_known = math.floor(byte / 32) == VERSION and WORDS[kind]
    if not is_known or kind == ACKNOWLEDGE and count > FLOWS_MAX then
        return false
    elseif kind == FEEDBACK and (flags ~= 16 * count or half ~= 0) then
        return false
    elseif (kind == ASKED or kind == ANSWERED) and (flags ~= 0 or half ~= 0) then
        return false
    end
    return reader:left() < 4 + 4 * (WORDS[kind] + count * (COUNTED_WORDS[kind] or 0))
end

-- Returns whether a kind is that of a message between daemons.
function frames.is_message(kind)
    return MESSAGES[kind] ~= nil
end

return frames
