-- The bucket of one provider and model: the rules of bucket.py, with Redis's clock as the clock of all workers.
-- KEYS[1]: a hash with the bucket; KEYS[2]: a sorted set with the calls under way, by the end of their slots.
-- ARGV[1]: an Exchange, ARGV[2]: the constants of bucket.py, both as JSON. Returns an ExchangeReply as JSON. Times are seconds.
local key, slots = KEYS[1], KEYS[2]
local request, rules = cjson.decode(ARGV[1]), cjson.decode(ARGV[2])
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local rates, feedback = request.rates, request.feedback
local period = rates.period_s
local width = period / rules.SLICES

local names = {'factor', 'before', 'cut_at', 'guessed', 'learned_at', 'paused', 'urgent', 'reserved', 'open', 'trips'}
for d = 1, #rates.most do
  names[#names + 1] = 'learned' .. d
  names[#names + 1] = 'due' .. d
  names[#names + 1] = 'total' .. d
  names[#names + 1] = 'first' .. d
  names[#names + 1] = 'last' .. d
end
local stored, state, changed = redis.pcall('HMGET', key, unpack(names)), {}, {}
for at, name in ipairs(names) do state[name] = tonumber(stored[at] or nil) end
-- What another program wrote there, or by a clock that was ahead of this one, would stop the calls.
if stored.err or type(redis.pcall('ZCARD', slots)) == 'table' or (state.last1 or 0) * width > now + period then
  redis.call('DEL', key, slots)
  state = {}
end

local function get(name, default) return state[name] or default end
local function set(name, value)
  state[name] = value
  changed[name] = true
end
local function slice(d, place) return d .. ':' .. string.format('%d', place) end
local function amount(d, place) return tonumber(redis.call('HGET', key, slice(d, place)) or '0') or 0 end

local function expire(d)
  local first, last = state['first' .. d], state['last' .. d]
  if not first then return end
  local total = get('total' .. d, 0)
  if (last + 1) * width <= now - period then
    -- No call for a whole period: every slice goes, in one sweep.
    for place = first, math.min(last, first + 2 * rules.SLICES) do redis.call('HDEL', key, slice(d, place)) end
    total, first, last = 0, nil, nil
  else
    while (first + 1) * width <= now - period do
      total = total - amount(d, first)
      redis.call('HDEL', key, slice(d, first))
      first = first + 1
    end
  end
  set('total' .. d, total)
  set('first' .. d, first)
  set('last' .. d, last)
end

local function grown()
  local cut_to = get('factor', 1)
  local before = get('before', cut_to)
  local periods = math.min((now - get('cut_at', 0)) / period, rules.LEARNED_KEPT)
  local cubic = before + rules.GROWTH * (periods - (math.max(0, before - cut_to) / rules.GROWTH) ^ (1 / 3)) ^ 3
  return math.max(cubic, cut_to + rules.LEAST_GROWTH * periods)
end

local function limits()
  if now - get('learned_at', 0) > rules.LEARNED_KEPT * period then
    for d = 1, #rates.most do set('learned' .. d, 0) end
    set('guessed', 0)
  end
  local factor, effective = grown(), {}
  for d, own in ipairs(rates.most) do
    local learned = get('learned' .. d, 0)
    local most = own
    if own <= 0 or (learned > 0 and learned < own) then most = learned end
    effective[d] = most * math.min(1, factor)
  end
  -- A guess may grow beyond itself.
  if get('guessed', 0) > 0 then effective[1] = get('learned1', 0) * factor end
  return effective
end

local function take(d, at, most, weight)
  if most > 0 then set('due' .. d, math.max(get('due' .. d, 0), now) + weight * period / most) end
  local place = math.floor(math.min(at, now) * rules.SLICES / period)
  local first = state['first' .. d]
  if not first then
    if weight <= 0 then return end
    set('first' .. d, place)
    set('last' .. d, place)
  elseif place < first then
    if weight <= 0 then return end
    place = first
  elseif place > state['last' .. d] then
    if weight <= 0 then return end
    set('last' .. d, place)
  end
  redis.call('HINCRBYFLOAT', key, slice(d, place), string.format('%.6f', weight))
  set('total' .. d, get('total' .. d, 0) + weight)
end

local function meter_wait(d, most, weight)
  if most <= 0 or weight <= 0 then return 0 end
  local wait = math.max(0, get('due' .. d, 0) - rules.BURST * period - now)
  local remaining, place = get('total' .. d, 0), state['first' .. d]
  while place and place <= state['last' .. d] and remaining + weight > most and remaining > 0.000001 do
    remaining = remaining - amount(d, place)
    wait = math.max(wait, (place + 1) * width + period - now)
    place = place + 1
  end
  return wait
end

local function rate(d)
  local first = state['first' .. d]
  if not first then return 0 end
  return get('total' .. d, 0) * period / math.max(now - first * width, period / 60)
end

for d = 1, #rates.most do expire(d) end
local most = limits()

-- Feedback of the provider.
for d, learned in ipairs(feedback.learned) do
  if learned > 0 then
    set('learned' .. d, learned)
    set('learned_at', now)
    if d == 1 then set('guessed', 0) end
  end
end
if feedback.rate_limited and now - get('cut_at', 0) >= rules.CUT_PAUSE * period then
  local present = rate(1)
  if most[1] <= 0 then
    set('learned1', math.max(1, present))
    set('learned_at', now)
    set('guessed', 1)
  end
  local before, through = grown(), 1
  if get('guessed', 0) > 0 then through = math.max(1, present / get('learned1', 0)) end
  before = math.max(rules.LEAST_FACTOR, math.min(through, before))
  set('before', before)
  set('factor', math.max(rules.LEAST_FACTOR, before * rules.CUT_FACTOR))
  set('cut_at', now)
end
if feedback.pause_s > 0 then set('paused', math.max(get('paused', 0), now + feedback.pause_s)) end
if feedback.well and get('trips', 0) > 0 then
  set('trips', 0)
  set('open', 0)
end
if get('trips', 0) == 0 and (feedback.trip or feedback.probe) then
  set('trips', 1)
  set('open', now + (feedback.trip and rules.COOL * period or 0))
end
most = limits()

for _, ended in ipairs(request.releases) do
  if rates.concurrency > 0 then redis.call('ZREM', slots, ended.id) end
  for d, more in ipairs(ended.more) do
    if more ~= 0 and (most[d] > 0 or d == 1) then take(d, ended.taken_at_s, most[d], more) end
  end
end
local kept_until = string.format('%.6f', now + rules.SLOT_KEPT_S)
if rates.concurrency > 0 then
  for _, id in ipairs(request.active) do redis.call('ZADD', slots, kept_until, id) end
  redis.call('ZREMRANGEBYSCORE', slots, '-inf', string.format('%.6f', now))
end

local granted, wait, why = 0, 0, ''

local function refusal(acquire)
  if now < get('paused', 0) then return get('paused', 0) - now, 'pause' end
  if get('trips', 0) > 0 and now < get('open', 0) then return get('open', 0) - now, 'breaker' end
  local reserved = rates.concurrency > 0 and redis.call('ZSCORE', slots, acquire.id)
  if not acquire.urgent and now < get('urgent', 0) then
    if reserved then
      redis.call('ZREM', slots, acquire.id)
      set('reserved', 0)
    end
    return get('urgent', 0) - now, 'urgent'
  end
  local wait, why = 0, ''
  local taken = rates.concurrency > 0 and redis.call('ZCARD', slots) - (reserved and 1 or 0) or 0
  if rates.concurrency > 0 and taken >= rates.concurrency then
    wait, why = width, 'slots'
    -- The next slot that comes free is for a process that lacks some of its share, one at a time.
    if granted < request.owed and (reserved or now >= get('reserved', 0)) then
      set('reserved', now + rules.SLOT_RESERVED_S)
      redis.call('ZADD', slots, string.format('%.6f', now + rules.SLOT_RESERVED_S), acquire.id)
      wait = rules.SLOT_WAIT_S
    end
  else
    for d, weight in ipairs(acquire.weights) do wait = math.max(wait, meter_wait(d, most[d], weight)) end
    if wait > 0 then why = 'limit' end
  end
  if acquire.urgent then
    local held = 0
    if why ~= '' then held = now + math.min(wait + width, rules.URGENT_HELD * period) end
    if held ~= get('urgent', 0) then set('urgent', held) end
  end
  return wait, why
end

for _, acquire in ipairs(request.acquires) do
  wait, why = refusal(acquire)
  if why ~= '' then break end
  local trips = get('trips', 0)
  if trips > 0 then
    set('trips', trips + 1)
    set('open', now + math.min(rules.COOL * 2 ^ trips, rules.LONGEST_COOL) * period)
  end
  if rates.concurrency > 0 and redis.call('ZADD', slots, kept_until, acquire.id) == 0 then set('reserved', 0) end
  for d, weight in ipairs(acquire.weights) do
    -- Requests are counted also without a limit, so that a refusal can make one.
    if weight ~= 0 and (most[d] > 0 or d == 1) then take(d, now, most[d], weight) end
  end
  granted = granted + 1
end

local writes, removals = {}, {}
for name in pairs(changed) do
  if state[name] == nil then
    removals[#removals + 1] = name
  else
    writes[#writes + 1] = name
    writes[#writes + 1] = string.format('%.6f', state[name])
  end
end
if #removals > 0 then redis.call('HDEL', key, unpack(removals)) end
if #writes > 0 then redis.call('HSET', key, unpack(writes)) end
local kept = math.ceil((rules.LEARNED_KEPT + rules.LONGEST_COOL) * period)
redis.call('EXPIRE', key, kept)
if rates.concurrency > 0 then redis.call('EXPIRE', slots, math.max(kept, math.ceil(rules.SLOT_KEPT_S))) end

local blocked = math.max(0, get('paused', 0) - now)
if get('trips', 0) > 0 then blocked = math.max(blocked, get('open', 0) - now) end
local effective = {}
for d, one in ipairs(most) do effective[d] = string.format('%.6f', one) end
return cjson.encode({
  granted = granted, at_s = string.format('%.6f', now), wait_s = string.format('%.6f', wait), why = why,
  limits = effective, broken = get('trips', 0) > 0, blocked_s = string.format('%.6f', blocked),
})
