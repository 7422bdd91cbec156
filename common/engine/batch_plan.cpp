#include "common/engine/batch_plan.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/core/random.h"

namespace tp {

namespace {

constexpr std::uint32_t kMagic = 0x6e6c7074;  // "tpln"
constexpr std::uint32_t kVersion = 1;
using Header = std::array<std::uint32_t, 8>;
static_assert(sizeof(PlannedSequence) == 4 * sizeof(std::int32_t));

Error broken(const std::string& why) {
  return Error(ErrorKind::rank, "the plan of a step cannot be read: " + why);
}

std::size_t bytes_for(std::size_t sequences, std::size_t tokens, std::size_t block_ids) {
  return sizeof(Header) + sequences * sizeof(PlannedSequence) +
         (3 * tokens + block_ids) * sizeof(std::int32_t);
}

// Takes `count` elements off the front of the bytes.
template <class T>
void take(std::span<const std::byte>& bytes, std::size_t count, std::vector<T>& to) {
  to.resize(count);
  if (count > 0) std::memcpy(to.data(), bytes.data(), count * sizeof(T));
  bytes = bytes.subspan(count * sizeof(T));
}

// Continues a hash over some bytes, 8 at a time, and over their number. Not against attackers: it
// shows ranks that have gone apart.
std::uint64_t hash_of(std::span<const std::byte> bytes, std::uint64_t hash) {
  const auto mix = [&](std::uint64_t word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  };
  mix(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min(sizeof word, bytes.size() - i));
    mix(word);
  }
  return hash;
}

// "3, 0, 5", the middle left out if there are many.
std::string short_list(std::span<const std::int32_t> values) {
  constexpr std::size_t kShown = 8;
  if (values.size() <= kShown) return fmt::format("{}", fmt::join(values, " "));
  return fmt::format("{} ... {}", fmt::join(values.first(kShown - 1), " "), values.back());
}

std::string range_of(std::int32_t first, std::int32_t last) {
  return first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
}

}  // namespace

void BatchPlan::add(std::int32_t id,
                    std::span<const std::int32_t> new_tokens,
                    std::int64_t first_position,
                    std::span<const std::int32_t> block_table,
                    std::int64_t block_size,
                    std::int64_t logit_rows) {
  const auto word = [](auto value) { return static_cast<std::int32_t>(value); };
  sequences.push_back({id, word(new_tokens.size()), word(logit_rows), word(block_table.size())});
  for (std::size_t i = 0; i < new_tokens.size(); ++i) {
    const std::int64_t position = first_position + static_cast<std::int64_t>(i);
    token_ids.push_back(new_tokens[i]);
    positions.push_back(word(position));
    slot_mapping.push_back(word(slot_of(block_table, position, block_size)));
  }
  block_ids.insert(block_ids.end(), block_table.begin(), block_table.end());
}

void BatchPlan::clear() {
  sequences.clear();
  for (auto* words : {&token_ids, &positions, &slot_mapping, &block_ids}) words->clear();
}

void BatchPlan::encode(std::vector<std::byte>& bytes) const {
  const auto count = [](const auto& v) { return static_cast<std::uint32_t>(v.size()); };
  const Header header{kMagic,
                      kVersion,
                      static_cast<std::uint32_t>(step),
                      static_cast<std::uint32_t>(step >> 32),
                      count(sequences),
                      count(token_ids),
                      count(block_ids),
                      0};
  bytes.resize(bytes_for(sequences.size(), token_ids.size(), block_ids.size()));
  std::byte* end = bytes.data();
  const auto append = [&](const auto& values) {
    const std::size_t size = values.size() * sizeof values[0];
    if (size > 0) std::memcpy(end, values.data(), size);
    end += size;
  };
  append(header);
  append(sequences);
  append(token_ids);
  append(positions);
  append(slot_mapping);
  append(block_ids);
}

void BatchPlan::decode(std::span<const std::byte> bytes) {
  Header header{};
  if (bytes.size() < sizeof header) throw broken(fmt::format("{} bytes", bytes.size()));
  std::memcpy(header.data(), bytes.data(), sizeof header);
  if (header[0] != kMagic) throw broken(fmt::format("it begins with {:#010x}", header[0]));
  if (header[1] != kVersion)
    throw broken(fmt::format("it has version {}, this program reads {}", header[1], kVersion));
  step = header[2] | std::uint64_t{header[3]} << 32;
  const std::size_t num_sequences = header[4], tokens = header[5], blocks = header[6];
  const std::size_t wanted = bytes_for(num_sequences, tokens, blocks);
  if (bytes.size() != wanted)
    throw broken(fmt::format("{} bytes instead of {}", bytes.size(), wanted));
  bytes = bytes.subspan(sizeof header);
  take(bytes, num_sequences, sequences);
  take(bytes, tokens, token_ids);
  take(bytes, tokens, positions);
  take(bytes, tokens, slot_mapping);
  take(bytes, blocks, block_ids);

  std::int64_t rows = 0, table_entries = 0;
  for (const PlannedSequence& s : sequences) {
    if (s.rows < 1 || s.logit_rows < 0 || s.logit_rows > s.rows || s.blocks < 0)
      throw broken(fmt::format("seq {} has {} tokens, {} rows of logits and {} blocks", s.id,
                               s.rows, s.logit_rows, s.blocks));
    for (std::int64_t i = rows + 1; i < std::min(rows + s.rows, std::ssize(positions)); ++i)
      if (positions[static_cast<std::size_t>(i)] != positions[static_cast<std::size_t>(i - 1)] + 1)
        throw broken(fmt::format("the positions of seq {} have a gap", s.id));
    rows += s.rows;
    table_entries += s.blocks;
  }
  if (rows != std::ssize(token_ids) || table_entries != std::ssize(block_ids))
    throw broken(fmt::format("its sequences have {} tokens and {} blocks, but there are {} and {}",
                             rows, table_entries, token_ids.size(), block_ids.size()));
}

void BatchPlan::sequence_rows(std::vector<SequenceRows>& rows) const {
  rows.clear();
  std::int64_t row = 0;
  std::size_t entry = 0;
  for (const PlannedSequence& s : sequences) {
    const auto blocks = static_cast<std::size_t>(s.blocks);
    rows.push_back({{row, row + s.rows},
                    positions[static_cast<std::size_t>(row)],
                    std::span(block_ids).subspan(entry, blocks)});
    row += s.rows;
    entry += blocks;
  }
}

std::uint64_t BatchPlan::fingerprint() const {
  std::uint64_t hash = random_bits(step, sequences.size());
  const auto mix = [&](const auto& words) {
    hash = hash_of(std::as_bytes(std::span(words)), hash);
  };
  mix(sequences);
  mix(token_ids);
  mix(positions);
  mix(slot_mapping);
  mix(block_ids);
  return hash;
}

Table BatchPlan::to_table(const std::string& name) const {
  Table table{name, {"seq", "input tokens", "positions", "block table", "slots", "logits"}, {}};
  std::size_t row = 0, entry = 0;
  for (const PlannedSequence& s : sequences) {
    const auto rows = static_cast<std::size_t>(s.rows), blocks = static_cast<std::size_t>(s.blocks);
    const auto part = [&](const std::vector<std::int32_t>& words) {
      return std::span(words).subspan(row, rows);
    };
    table.rows.push_back({std::to_string(s.id), short_list(part(token_ids)),
                          range_of(positions[row], positions[row + rows - 1]),
                          short_list(std::span(block_ids).subspan(entry, blocks)),
                          short_list(part(slot_mapping)), s.logit_rows > 0 ? "yes" : "no"});
    row += rows;
    entry += blocks;
  }
  return table;
}

std::string first_difference(const BatchPlan& plan,
                             int rank,
                             const BatchPlan& other_plan,
                             int other_rank,
                             const SequenceName& name) {
  const auto sides = [&](const std::string& where, const std::string& what, auto a, auto b) {
    return fmt::format("{}: rank {} {} {}, rank {} {} {}", where, rank, what, a, other_rank, what,
                       b);
  };
  if (plan.step != other_plan.step) return sides("steps", "step", plan.step, other_plan.step);
  const std::string step = fmt::format("step {}", plan.step);
  std::size_t row = 0, entry = 0;
  const std::size_t both = std::min(plan.sequences.size(), other_plan.sequences.size());
  for (std::size_t i = 0; i < both; ++i) {
    const PlannedSequence &a = plan.sequences[i], &b = other_plan.sequences[i];
    const auto called = [&](std::int32_t id) { return name ? name(id) : std::to_string(id); };
    if (a.id != b.id)
      return sides(fmt::format("{}, place {}", step, i), "seq", called(a.id), called(b.id));
    const std::string seq = fmt::format("{}, seq {}", step, called(a.id));
    if (a.rows != b.rows) return sides(seq, "tokens", a.rows, b.rows);
    if (a.logit_rows != b.logit_rows) return sides(seq, "logit rows", a.logit_rows, b.logit_rows);
    if (a.blocks != b.blocks) return sides(seq, "blocks", a.blocks, b.blocks);
    for (std::size_t j = entry; j < entry + static_cast<std::size_t>(a.blocks); ++j)
      if (plan.block_ids[j] != other_plan.block_ids[j])
        return sides(seq, "block", plan.block_ids[j], other_plan.block_ids[j]);
    entry += static_cast<std::size_t>(a.blocks);
    for (const std::size_t end = row + static_cast<std::size_t>(a.rows); row < end; ++row) {
      const std::string token = fmt::format("{}, token {}", seq, row);
      if (plan.positions[row] != other_plan.positions[row])
        return sides(token, "position", plan.positions[row], other_plan.positions[row]);
      if (plan.token_ids[row] != other_plan.token_ids[row])
        return sides(token, "id", plan.token_ids[row], other_plan.token_ids[row]);
      if (plan.slot_mapping[row] != other_plan.slot_mapping[row])
        return sides(token, "slot", plan.slot_mapping[row], other_plan.slot_mapping[row]);
    }
  }
  if (plan.sequences.size() != other_plan.sequences.size())
    return sides(step, "sequences", plan.sequences.size(), other_plan.sequences.size());
  return {};
}

}  // namespace tp
