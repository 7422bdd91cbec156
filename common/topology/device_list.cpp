#include "common/topology/device_list.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <iterator>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/core/plural.h"
#include "common/topology/text_lines.h"

namespace tp {

namespace {

constexpr std::size_t kMostShown = 120;    // bytes of a list, or of an entry, in a message
constexpr std::size_t kMostProblems = 20;  // told at once

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> entries;
  for (std::size_t begin = 0;;) {
    const std::size_t comma = text.find(',', begin);
    entries.push_back(trim(text.substr(begin, comma - begin)));
    if (comma == std::string_view::npos) return entries;
    begin = comma + 1;
  }
}

bool is_number(std::string_view entry) {
  if (entry.starts_with('-')) entry.remove_prefix(1);
  return !entry.empty() &&
         std::all_of(entry.begin(), entry.end(), [](char c) { return c >= '0' && c <= '9'; });
}

struct Absent {
  std::string why;  // CUDA ends the list here
};
struct Wrong {
  std::string why;  // cannot be meant
};
using Resolved = std::variant<std::size_t, Absent, Wrong>;

Resolved resolve_number(std::string_view entry, std::size_t count) {
  const std::string range =
      count == 1 ? "the only GPU here is 0" : fmt::format("GPUs here are 0 to {}", count - 1);
  const Absent absent{
      fmt::format("the list ends before entry {}: {}", printable(entry, kMostShown), range)};
  if (entry.starts_with('-')) return absent;
  std::size_t number = 0;
  const auto [next, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
  if (error != std::errc() || number >= count) return absent;
  return number;
}

Resolved resolve_uuid(std::string_view entry, const PresentCards& present) {
  if (present.uuids.empty())
    return Wrong{fmt::format("{}: the UUIDs of the cards are not known here; give their numbers",
                             printable(entry, kMostShown))};
  std::vector<std::size_t> matches;
  for (std::size_t i = 0; i < present.uuids.size(); ++i)
    if (present.uuids[i].starts_with(entry)) matches.push_back(i);
  if (matches.size() > 1)
    return Wrong{fmt::format("{}: {} GPUs ({}) have a UUID that begins so; write more of it",
                             printable(entry, kMostShown), matches.size(),
                             fmt::join(matches, ", "))};
  if (matches.empty())
    return Absent{fmt::format("the list ends before entry {}: no GPU here has that UUID",
                              printable(entry, kMostShown))};
  return matches[0];
}

Resolved resolve(std::string_view entry, const PresentCards& present) {
  if (is_number(entry)) return resolve_number(entry, present.count);
  if (entry.starts_with("GPU-")) return resolve_uuid(entry, present);
  if (entry.starts_with("MIG-"))
    return Wrong{fmt::format(
        "{}: is a MIG slice. CUDA shows a process one slice only, and slices have no peer access, "
        "so ranks that talk to each other need whole cards: give their numbers, and switch MIG off "
        "with nvidia-smi -i GPU -mig 0",
        printable(entry, kMostShown))};
  if (entry.empty()) return Wrong{"an entry is empty; write numbers between single commas"};
  return Wrong{fmt::format("{}: is neither a number nor a UUID GPU-...; write for example 0,1",
                           printable(entry, kMostShown))};
}

std::string quoted(std::string_view called, const std::string& list) {
  return fmt::format("{}\"{}\"", called, printable(list, kMostShown));
}

}  // namespace

DeviceList read_device_list(const std::optional<std::string>& list,
                            const PresentCards& present,
                            std::string_view called) {
  DeviceList visible;
  if (present.count == 0)
    throw input_error("no GPU is present; there is nothing that CUDA_VISIBLE_DEVICES could choose");
  if (!list) {
    for (std::size_t i = 0; i < present.count; ++i) visible.physical.push_back(i);
    return visible;
  }
  if (trim(*list).empty()) {
    visible.note = "the list is empty";
    return visible;
  }
  std::vector<std::string> problems;
  const auto complain = [&](const std::string& what) {
    std::string problem = quoted(called, *list) + ": " + what;
    if (problems.size() < kMostProblems && (problems.empty() || problems.back() != problem))
      problems.push_back(std::move(problem));
  };
  for (const std::string_view entry : split_at_commas(*list)) {
    const Resolved resolved = resolve(entry, present);
    if (std::holds_alternative<Absent>(resolved)) {
      visible.note = std::get<Absent>(resolved).why;
      break;
    }
    if (const auto* wrong = std::get_if<Wrong>(&resolved)) {
      complain(wrong->why);
      continue;
    }
    const std::size_t card = std::get<std::size_t>(resolved);
    const auto& before = visible.physical;
    if (std::find(before.begin(), before.end(), card) == before.end())
      visible.physical.push_back(card);
    else
      complain(fmt::format("names GPU {} twice; two ranks cannot share it, so name each card once",
                           card));
  }
  if (!problems.empty()) throw input_error(fmt::format("{}", fmt::join(problems, "\n")));
  return visible;
}

DeviceList parse_device_list(const std::optional<std::string>& list,
                             const PresentCards& present,
                             std::string_view called) {
  DeviceList visible = read_device_list(list, present, called);
  if (visible.physical.empty())
    throw input_error(
        fmt::format("{}: no GPU is visible, {}; unset it, or list GPUs, for example 0,1",
                    quoted(called, *list), visible.note));
  return visible;
}

std::vector<std::size_t> devices_of_ranks(const std::optional<std::string>& list,
                                          const PresentCards& present,
                                          std::size_t tp_size,
                                          std::string_view called) {
  DeviceList visible = parse_device_list(list, present, called);
  if (visible.physical.size() < tp_size)
    throw input_error(
        fmt::format("tp={}: {} visible, {} needed ({}{}); make more visible or lower --tp", tp_size,
                    plural(visible.physical.size(), "GPU"), tp_size,
                    list ? quoted(called, *list) : "CUDA_VISIBLE_DEVICES is not set",
                    visible.note.empty() ? "" : "; " + visible.note));
  visible.physical.resize(tp_size);
  return visible.physical;
}

std::string device_order_warning(const std::vector<std::string>& card_names,
                                 const std::optional<std::string>& device_order) {
  if (device_order == "PCI_BUS_ID") return {};
  std::vector<std::string> known;
  std::copy_if(card_names.begin(), card_names.end(), std::back_inserter(known),
               [](const std::string& name) { return !name.empty(); });
  const auto other = std::adjacent_find(known.begin(), known.end(), std::not_equal_to<>());
  if (other == known.end()) return {};
  return fmt::format(
      "the cards are of different models ({}, {}): CUDA counts the fastest first, nvidia-smi and "
      "its topology by PCI bus; set CUDA_DEVICE_ORDER=PCI_BUS_ID, so that both mean the same card",
      *other, *(other + 1));
}

}  // namespace tp
