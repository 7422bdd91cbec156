// What CUDA_VISIBLE_DEVICES selects, as a function of its text. [introduced in chapter 10]
//
// The text is a list of entries between commas; blanks around an entry do not count. An entry is
// - a number, as nvidia-smi counts if CUDA_DEVICE_ORDER=PCI_BUS_ID is set;
// - a UUID "GPU-..." or as much of it as only one card begins with.
// As in CUDA the list ends before the first entry that no card has: -1, a number that is too large,
// a UUID of another machine. Anything else is refused and never taken for a number: a word, an empty
// entry, an entry that names a card twice, a MIG slice.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tp {

// The cards that a machine has.
struct PresentCards {
  std::size_t count = 0;
  std::vector<std::string> uuids;  // one per card, or none if they are not known
};

// The local numbers 0, 1, ... are the indices of `physical`: rank r runs on physical[r].
struct DeviceList {
  std::vector<std::size_t> physical;
  std::string note;  // why the list ends before its last entry; empty if it does not
};

// What a list selects, which may be nothing. Without a list (the variable is not set) all cards are
// visible. `called` is what stands before the list in messages, "--visible " for example.
// Errors: tp::Error (input), all problems at once, each with the list and a remedy.
DeviceList read_device_list(const std::optional<std::string>& list,
                            const PresentCards& present,
                            std::string_view called = "CUDA_VISIBLE_DEVICES=");

// The same where at least one card is needed.
// Errors: as read_device_list, and if no card is visible.
DeviceList parse_device_list(const std::optional<std::string>& list,
                             const PresentCards& present,
                             std::string_view called = "CUDA_VISIBLE_DEVICES=");

// The physical cards of `tp_size` ranks: the first ones of the list.
// Errors: as parse_device_list, and if fewer cards are visible than there are ranks.
std::vector<std::size_t> devices_of_ranks(const std::optional<std::string>& list,
                                          const PresentCards& present,
                                          std::size_t tp_size,
                                          std::string_view called = "CUDA_VISIBLE_DEVICES=");

// What to say where cards of different models may be counted in two ways: CUDA counts the fastest
// first, nvidia-smi by PCI bus. Empty if there is no difference; an empty name is not known.
// `device_order` is the value of CUDA_DEVICE_ORDER, if it is set.
std::string device_order_warning(const std::vector<std::string>& card_names,
                                 const std::optional<std::string>& device_order);

}  // namespace tp
