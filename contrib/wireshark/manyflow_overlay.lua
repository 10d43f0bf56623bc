-- The overlay's frames (manyflow_overlay_frames.lua): on streams over TCP behind
-- the handshake of daemons (manyflow-messages/src/hello.rs), in datagrams of simulations, and in
-- packets of live links of datagrams (manyflow-messages/src/datagram).

local common = require("manyflow_common")
local frames = require("manyflow_overlay_frames")

local proto = Proto("manyflow_overlay", "Overlay of manyflow")
local malformed = common.malformed("manyflow_overlay")
local f, frame, stream_frame = frames.fields, frames.frame, frames.stream_frame
proto.fields = f
proto.experts = { malformed }

local function set_info(pinfo, reader, name)
    pinfo.cols.protocol = "OVERLAY"
    pinfo.cols.info = common.info(reader, name)
end

-- Streams: the handshake, and frames behind their lengths.

local MAGIC = "manyflo\6"
local HELLO_BYTES, RESUME_BYTES, ENDPOINT_BYTES, NAME_BYTES_MAX, LENGTH_BYTES = 15, 8, 10, 128, 2
local phases, starts = {}, {}

function proto.init()
    phases, starts = {}, {}
end

local function name(reader, field)
    local length = reader:take(f.name_length, 1)
    if not length then
        return
    elseif length == 0 or length > NAME_BYTES_MAX then
        return reader:refuse("a name of %d bytes: it has 1 to %d", length, NAME_BYTES_MAX)
    elseif reader:left() >= length and not reader.tvb:range(reader.at, length):raw():match("^[%w%-_.]+$") then
        return reader:refuse("a name has other characters than letters, digits, dots, hyphens and underscores")
    end
    reader:take(field, length)
end

-- A daemon's description of itself. Returns the phase that follows.
local function hello(reader)
    reader:take_all({ { f.magic, 8 }, { f.id, 2 }, { f.own_incarnation, 4 } })
    local flags = reader:peek(1)
    reader:show(f.dials, 1)
    reader:show(f.datagrams, 1)
    reader:take(f.hello_flags, 1)
    if flags and flags > 3 then
        reader:refuse("the handshake has an unknown flag")
    end
    name(reader, f.overlay)
    name(reader, f.daemon)
    return flags and flags >= 2 and "resume, then endpoint" or "resume"
end

-- Decodes the part of a stream at `at`. Returns its end and name, or nil and the bytes that miss.
local function stream_part(tvb, tree, at, phase)
    local have = tvb:len() - at
    if phase == "start" and have < #MAGIC and tvb:range(at, have):raw() == MAGIC:sub(1, have) then
        return nil, DESEGMENT_ONE_MORE_SEGMENT
    elseif phase == "start" and have >= #MAGIC and tvb:range(at, #MAGIC):raw() == MAGIC then
        local dry = common.reader(tvb, nil, nil, at)
        hello(dry)
        if dry.is_short then
            return nil, DESEGMENT_ONE_MORE_SEGMENT
        end
        local reader = common.reader(tvb, tree and tree:add(proto, tvb:range(at, dry.at - at)), malformed, at)
        return reader, "Hello", hello(reader)
    elseif phase:match("^resume") then
        if have < RESUME_BYTES then
            return nil, RESUME_BYTES - have
        end
        local reader = common.reader(tvb, tree:add(proto, tvb:range(at, RESUME_BYTES)), malformed, at)
        reader:take_all({ { f.resume_incarnation, 4 }, { f.received, 4 } })
        return reader, "Resume", phase == "resume" and "frames" or "endpoint"
    elseif phase == "endpoint" then
        if have < ENDPOINT_BYTES then
            return nil, ENDPOINT_BYTES - have
        end
        local reader = common.reader(tvb, tree:add(proto, tvb:range(at, ENDPOINT_BYTES)), malformed, at)
        reader:take_all({ { f.port, 2 }, { f.link, 8 } })
        return reader, "Endpoint", "frames"
    end
    if have < LENGTH_BYTES then
        return nil, DESEGMENT_ONE_MORE_SEGMENT
    end
    local length = tvb:range(at, LENGTH_BYTES):uint()
    local stop = at + LENGTH_BYTES + length
    if stop > tvb:len() then
        -- Bytes that cannot become a frame are refused at once, without waiting for the rest.
        local dry = common.reader(tvb, nil, nil, at + LENGTH_BYTES)
        local is_undecided = frames.is_undecided(dry)
        stream_frame(dry)
        if is_undecided or not dry.refused then
            return nil, stop - tvb:len()
        end
        stop = tvb:len()
    end
    local reader = common.reader(tvb, tree:add(proto, tvb:range(at, stop - at)), malformed, at, stop)
    reader:take(f.length, LENGTH_BYTES)
    return reader, stream_frame(reader), "frames"
end

local tcp_stream = Field.new("tcp.stream")

-- Returns the phase of the direction of a stream at a place in a frame.
local function phase_at(pinfo, place)
    local here = pinfo.number .. "/" .. place
    local direction = tostring(tcp_stream() and tcp_stream().value) .. "/" .. tostring(pinfo.src) .. "/" .. pinfo.src_port
    if not pinfo.visited then
        starts[here] = phases[direction] or "start"
    end
    return starts[here] or "start", direction
end

local function is_tls(tvb)
    if tvb:len() < 3 then
        return false
    end
    local kind, major, minor = tvb:range(0, 1):uint(), tvb:range(1, 1):uint(), tvb:range(2, 1):uint()
    return kind >= 0x14 and kind <= 0x17 and major == 3 and minor <= 4
end

local function dissect_stream(tvb, pinfo, tree)
    local at, names = 0, {}
    pinfo.cols.protocol = "OVERLAY"
    while at < tvb:len() do
        local phase, direction = phase_at(pinfo, tvb:len() - at)
        local reader, name_or_missing, next_phase = stream_part(tvb, tree, at, phase)
        if not reader and pinfo.can_desegment > 0 then
            pinfo.desegment_offset = at
            pinfo.desegment_len = name_or_missing
            break
        elseif not reader then
            -- Without reassembly, the rest of the frame is in other segments.
            tree:add(proto, tvb:range(at)):append_text(" [a part of a frame]")
            break
        end
        if not pinfo.visited then
            phases[direction] = reader.refused and "frames" or next_phase
        end
        if reader.refused then
            set_info(pinfo, reader)
            return tvb:len()
        end
        names[#names + 1] = name_or_missing
        at = reader.at
    end
    if #names > 0 then
        pinfo.cols.info = table.concat(names, ", ")
    end
    return tvb:len()
end

local tls_found, tls = pcall(Dissector.get, "tls")

-- Over TCP, a stream, which TLS usually protects; over UDP, a frame of a simulation.
function proto.dissector(tvb, pinfo, tree)
    if pinfo.port_type == 2 then
        if tls_found and is_tls(tvb) then
            common.call(tls, tvb, pinfo, tree)
            return tvb:len()
        end
        return dissect_stream(tvb, pinfo, tree)
    end
    local reader = common.reader(tvb, common.subtree(tree, proto, tvb), malformed)
    set_info(pinfo, reader, frame(reader))
    return tvb:len()
end

common.register_udp_heuristic(proto, function(tvb, pinfo)
    local reader = common.reader(tvb)
    frame(reader)
    return not reader.refused and not common.is_multicast(pinfo)
end)

-- A handshake of daemons, or a whole frame.
proto:register_heuristic("tcp", function(tvb, pinfo, tree)
    local have = tvb:len()
    local is_hello = have >= #MAGIC and tvb:range(0, #MAGIC):raw() == MAGIC
    if not is_hello then
        local length = have > LENGTH_BYTES and tvb:range(0, LENGTH_BYTES):uint()
        if not length or LENGTH_BYTES + length > have then
            return false
        end
        local reader = common.reader(tvb, nil, nil, LENGTH_BYTES, LENGTH_BYTES + length)
        stream_frame(reader)
        if reader.refused then
            return false
        end
    end
    pinfo.conversation = proto
    proto.dissector(tvb, pinfo, tree)
    return true
end)

-- Packets of live links of datagrams.

local packet_proto = Proto("manyflow_overlay_packet", "Packet of an overlay link of manyflow")
local packet_malformed = common.malformed("manyflow_overlay_packet")
local BODIES = { [0] = "keep-alive", [1] = "frame", [2] = "direct message" }
local KEEP_ALIVE, FRAME, DIRECT, HEADER_BYTES, TAG_BYTES = 0, 1, 2, 16, 16

local p = {
    link = ProtoField.uint64("manyflow_overlay_packet.link", "Number of the receiving end", base.HEX),
    number = ProtoField.uint64("manyflow_overlay_packet.number", "Number of the packet"),
    kind = ProtoField.uint8("manyflow_overlay_packet.kind", "Kind", base.DEC, BODIES),
    from = ProtoField.uint16("manyflow_overlay_packet.from", "From daemon"),
    to = ProtoField.uint16("manyflow_overlay_packet.to", "To daemon"),
    hops = ProtoField.uint8("manyflow_overlay_packet.hops", "Links that it may still take"),
    sealed = ProtoField.bytes("manyflow_overlay_packet.sealed", "Sealed body (AES-128-GCM)"),
    tag = ProtoField.bytes("manyflow_overlay_packet.tag", "Tag (not verified)"),
}
packet_proto.fields = p
packet_proto.experts = { packet_malformed }

local GUESS, CLEAR, SEALED = 0, 1, 2
local PROTECTIONS = {
    { 1, "guess from the body", GUESS },
    { 2, "none (insecure daemons)", CLEAR },
    { 3, "sealed", SEALED },
}
packet_proto.prefs.protection = Pref.enum("Protection", GUESS, "Whether bodies of packets are sealed", PROTECTIONS, false)

-- The frame in a body. Returns its name.
local function enclosed(reader, kind)
    if reader.refused then
        return nil
    end
    local outer, expert = reader.tree, reader.expert
    reader.tree = outer and outer:add(proto, reader.tvb:range(reader.at, reader:left()))
    reader.expert = malformed
    local found = reader:peek(1)
    local inner = frame(reader)
    local is_message = found and frames.is_message(found % 32)
    if kind == FRAME and (is_message or found and found % 32 >= frames.CONNECT) then
        reader:refuse("a link carries numbered datagrams and feedback only")
    elseif kind == DIRECT and (not is_message or reader.payload_bytes and reader.payload_bytes > 0) then
        reader:refuse("a direct message is a message without a number and a payload")
    end
    reader.tree, reader.expert = outer, expert
    return inner
end

local function clear_body(reader)
    local kind = reader:take(p.kind, 1)
    if not kind then
        return nil
    elseif not BODIES[kind] then
        return reader:refuse("kind %d is not known: 0 is a keep-alive, 1 a frame, 2 a direct message", kind)
    elseif kind == KEEP_ALIVE then
        if reader:left() > 0 then
            reader:refuse("%d bytes follow a keep-alive", reader:left())
        end
        return "keep-alive"
    elseif kind == DIRECT then
        reader:take_all({ { p.from, 2 }, { p.to, 2 }, { p.hops, 1 } })
    end
    return enclosed(reader, kind)
end

local function header(reader)
    return reader:take_all({ { p.link, 8 }, { p.number, 8 } })
end

-- Returns whether the body is that of a packet without protection.
local function is_clear(tvb)
    local reader = common.reader(tvb)
    header(reader)
    clear_body(reader)
    return not reader.refused
end

local function sealed_body(reader)
    local body = reader:left() - TAG_BYTES
    if body < 1 then
        return reader:refuse("%d bytes are too few for a body and its tag", reader:left())
    end
    reader:take(p.sealed, body)
    reader:take(p.tag, TAG_BYTES)
    return "sealed"
end

function packet_proto.dissector(tvb, pinfo, tree)
    local reader = common.reader(tvb, common.subtree(tree, packet_proto, tvb), packet_malformed)
    local text
    if header(reader) then
        local protection = packet_proto.prefs.protection
        local clear = protection == CLEAR or protection == GUESS and is_clear(tvb)
        text = clear and clear_body(reader) or not clear and sealed_body(reader)
    end
    set_info(pinfo, reader, text)
    return tvb:len()
end

-- Only clear bodies can be recognised, behind a number below 2^32.
common.register_udp_heuristic(packet_proto, function(tvb)
    return tvb:len() > HEADER_BYTES and tvb:range(8, 4):uint() == 0 and is_clear(tvb)
end)

common.register_ports(proto, {
    { table = "tcp.port", preference = "tcp_ports", label = "TCP ports of daemons", default = "4747" },
})
common.register_ports(packet_proto, {
    { table = "udp.port", preference = "udp_ports", label = "UDP ports of links", default = "4747" },
})
DissectorTable.get("udp.port"):add_for_decode_as(proto)
