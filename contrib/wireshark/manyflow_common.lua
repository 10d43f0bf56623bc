-- The parts that the dissectors of manyflow share. Wireshark may load this file as a plugin, too;
-- it registers nothing.

local common = {}

-- Reads a range of bytes field by field, and adds each field to a tree. Without a tree it only
-- reads, which decides whether bytes are of a protocol.
local Reader = {}
Reader.__index = Reader

-- `expert` is the expert info of bytes that the protocol's decoder refuses.
function common.reader(tvb, tree, expert, from, to)
    local reader = { tvb = tvb, tree = tree, expert = expert, at = from or 0, to = to or tvb:len() }
    reader.is_cut = tvb:len() < tvb:reported_len()
    return setmetatable(reader, Reader)
end

function Reader:left()
    return self.to - self.at
end

-- Returns an unsigned integer of at most 4 bytes, `offset` bytes ahead; nil if the bytes end before.
function Reader:peek(bytes, offset)
    local at = self.at + (offset or 0)
    if at + bytes > self.to then
        return nil
    end
    return self.tvb:range(at, bytes):uint()
end

-- Refuses the bytes. The first reason counts. Bytes that the capture has cut prove nothing.
function Reader:refuse(...)
    if self.refused then
        return nil
    end
    self.refused = string.format(...)
    if self.is_cut then
        self.refused = "not checked, because the capture holds only a part of the packet"
    end
    if self.tree and self.is_cut then
        self.tree:append_text(" [" .. self.refused .. "]")
    elseif self.tree then
        self.tree:add_proto_expert_info(self.expert, self.refused)
    end
    return nil
end

-- Adds the next `bytes` as a field and returns them as a number, or as their range if they are
-- longer than 4 bytes. Refuses bytes that end before the field does.
function Reader:take(field, bytes)
    if self.refused then
        return nil
    end
    if self:left() < bytes then
        self.is_short = true
        return self:refuse("%d bytes are too few: the header takes more", self.to)
    end
    local range = self.tvb:range(self.at, bytes)
    if self.tree and field then
        self.item = self.tree:add(field, range)
    end
    self.at = self.at + bytes
    if bytes <= 4 then
        return range:uint()
    end
    return range
end

-- Takes each of a list of `{ field, bytes }`. Returns whether all were there.
function Reader:take_all(list)
    for _, entry in ipairs(list) do
        if self:take(entry[1], entry[2]) == nil then
            return false
        end
    end
    return true
end

-- Adds the next `bytes` without advancing: flags that share bytes with other fields.
function Reader:show(field, bytes, offset)
    local at = self.at + (offset or 0)
    if self.tree and not self.refused and at + bytes <= self.to then
        self.tree:add(field, self.tvb:range(at, bytes))
    end
end

-- Adds a value that no field has, such as one in other units, over the last `bytes`.
function Reader:computed(field, bytes, value)
    if self.tree and not self.refused then
        self.tree:add(field, self.tvb:range(self.at - bytes, bytes), value):set_generated()
    end
end

-- Adds all remaining bytes as a field, if there are any.
function Reader:rest(field)
    if not self.refused and self:left() > 0 then
        if self.tree then
            self.tree:add(field, self.tvb:range(self.at, self:left()))
        end
        self.at = self.to
    end
end

-- Continues in a part of the tree over the next `bytes`, or over all that remain. Returns the outer
-- part.
function Reader:open(field, bytes)
    local outer = self.tree
    if outer then
        self.tree = outer:add(field, self.tvb:range(self.at, math.min(bytes, self:left())))
    end
    return outer
end

-- Returns whether `count` bytes from `offset` ahead are zero, as far as they exist.
function Reader:is_zero(count, offset)
    local first = self.at + (offset or 0)
    for at = first, math.min(first + count, self.to) - 1 do
        if self.tvb:range(at, 1):uint() ~= 0 then
            return false
        end
    end
    return true
end

-- Returns the part of a tree for a protocol. A packet may be empty.
function common.subtree(tree, proto, tvb)
    return tvb:len() > 0 and tree:add(proto, tvb()) or tree:add(proto)
end

-- Returns whether a text is UTF-8 (RFC 3629): no byte is missing, and no form is overlong.
function common.is_utf8(text)
    local at = 1
    while at <= #text do
        local first, second = text:byte(at, at + 1)
        local more = first < 0x80 and 0 or first < 0xC2 and -1 or first < 0xE0 and 1 or first < 0xF0 and 2
            or first < 0xF5 and 3 or -1
        local low = first == 0xE0 and 0xA0 or first == 0xF0 and 0x90 or 0x80
        local high = first == 0xED and 0x9F or first == 0xF4 and 0x8F or 0xBF
        if more < 0 or more > 0 and (not second or second < low or second > high) then
            return false
        end
        for next_at = at + 2, at + more do
            local byte = text:byte(next_at)
            if not byte or byte < 0x80 or byte > 0xBF then
                return false
            end
        end
        at = at + 1 + more
    end
    return true
end

-- Lets one of Wireshark's own dissectors dissect a packet. A malformed packet is an error here after
-- Wireshark has shown it. Wireshark leaves the interpreter without returning from it if a dissector
-- reaches the end of a packet that the capture has cut, which fails after some hundred packets; so
-- these packets are not handed over.
function common.call(dissector, tvb, pinfo, tree)
    if dissector and tvb:len() == tvb:reported_len() then
        pcall(dissector.call, dissector, tvb, pinfo, tree)
        return true
    end
    return false
end

-- Returns the text of the column Info.
function common.info(reader, text)
    if not reader.refused then
        return text
    end
    return reader.is_cut and ("[" .. reader.refused .. "]") or ("malformed: " .. reader.refused)
end

-- Returns the expert info of a protocol.
function common.malformed(name)
    local group, severity = expert.group.MALFORMED, expert.severity.ERROR
    return ProtoExpert.new(name .. ".malformed", "The decoder refuses these bytes", group, severity)
end

-- Gives `proto` the ports of a preference in a table of dissectors. `dissector` is `proto` itself
-- if it is nil.
function common.register_ports(proto, entries)
    local current = {}
    for _, entry in ipairs(entries) do
        local text = "Comma-separated ports and ranges; empty for none"
        proto.prefs[entry.preference] = Pref.range(entry.label, entry.default, text, 65535)
        current[entry] = entry.default
        if entry.default ~= "" then
            DissectorTable.get(entry.table):add(entry.default, entry.dissector or proto)
        end
        DissectorTable.get(entry.table):add_for_decode_as(proto)
    end
    function proto.prefs_changed()
        for _, entry in ipairs(entries) do
            local wanted, dissector = proto.prefs[entry.preference], entry.dissector or proto
            local ports = DissectorTable.get(entry.table)
            if wanted ~= current[entry] then
                if current[entry] ~= "" then
                    ports:remove(current[entry], dissector)
                end
                if wanted ~= "" then
                    ports:add(wanted, dissector)
                end
                current[entry] = wanted
            end
        end
    end
end

-- Registers a heuristic over UDP: `accepts` decides from the bytes and the addresses. Later packets
-- of the conversation are of the protocol whatever they contain, so malformed ones are seen.
function common.register_udp_heuristic(proto, accepts)
    proto:register_heuristic("udp", function(tvb, pinfo, tree)
        if not accepts(tvb, pinfo) then
            return false
        end
        pinfo.conversation = proto
        proto.dissector(tvb, pinfo, tree)
        return true
    end)
end

-- Returns whether a packet is for a multicast group of IPv4 or IPv6.
function common.is_multicast(pinfo)
    local address = tostring(pinfo.dst)
    local first = tonumber(address:match("^(%d+)%."))
    if first then
        return first >= 224 and first < 240
    end
    return address:lower():match("^ff") ~= nil
end

return common
