#include "common/topology/device_list.h"

#include "common/core/error.h"
#include "tests/catch.h"

using namespace tp;
using Numbers = std::vector<std::size_t>;

namespace {

const PresentCards kFour{4, {"GPU-7c1e-0", "GPU-1a2b-1", "GPU-1a2c-2", "GPU-ffff-3"}};

std::string refusal(const std::optional<std::string>& list, std::size_t tp) {
  try {
    devices_of_ranks(list, kFour, tp);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    return e.what();
  }
  FAIL("accepted");
  return "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("ranks run on the cards of the list in its order") {
  CHECK(devices_of_ranks(std::nullopt, kFour, 2) == Numbers{0, 1});
  CHECK(devices_of_ranks("2,3", kFour, 2) == Numbers{2, 3});
  CHECK(devices_of_ranks("3,1", kFour, 2) == Numbers{3, 1});
  CHECK(devices_of_ranks("0,1,2,3", kFour, 2) == Numbers{0, 1});
  CHECK(devices_of_ranks(" 2 ,\t0", kFour, 2) == Numbers{2, 0});  // blanks around entries
}

TEST_CASE("the list ends before an entry that no card has") {
  const DeviceList list = parse_device_list("0,3,-1,1", kFour);
  CHECK(list.physical == Numbers{0, 3});
  CHECK(has(list.note, "-1"));
  CHECK(devices_of_ranks("0,3,-1,1", kFour, 2) == Numbers{0, 3});
  CHECK(parse_device_list("2,4,1", kFour).physical == Numbers{2});
  CHECK(parse_device_list("2,99999999999999999999,1", kFour).physical == Numbers{2});
  CHECK(parse_device_list("GPU-7c1e,GPU-0000,1", kFour).physical == Numbers{0});
  CHECK(parse_device_list("1,2", kFour).note.empty());

  const std::string text = refusal("0,3,-1,1", 4);
  CHECK(has(text, "tp=4: 2 GPUs visible, 4 needed"));
  CHECK(has(text, "\"0,3,-1,1\""));
  CHECK(has(text, "entry -1"));
}

TEST_CASE("a list without a card is refused") {
  CHECK(has(refusal("", 2), "no GPU is visible"));
  CHECK(has(refusal("  ", 2), "no GPU is visible"));
  CHECK(has(refusal("-1", 1), "no GPU is visible"));
  CHECK(has(refusal("7", 1), "no GPU is visible"));
  CHECK_THROWS_AS(parse_device_list(std::nullopt, {}), Error);
}

TEST_CASE("too few cards are refused with both numbers") {
  CHECK(has(refusal("1", 2), "1 GPU visible, 2 needed"));
  CHECK(
      has(refusal(std::nullopt, 5), "4 GPUs visible, 5 needed (CUDA_VISIBLE_DEVICES is not set)"));
}

TEST_CASE("a card named twice is refused, however it is named") {
  CHECK(has(refusal("0,0", 2), "GPU 0 twice"));
  CHECK(has(refusal("1,GPU-1a2b", 2), "GPU 1 twice"));
  CHECK(has(refusal("1,01", 2), "GPU 1 twice"));
}

TEST_CASE("UUIDs may be shortened as long as one card fits") {
  CHECK(devices_of_ranks("GPU-7c1e,GPU-1a2b", kFour, 2) == Numbers{0, 1});
  CHECK(devices_of_ranks("GPU-ffff-3,GPU-1a2c-2", kFour, 2) == Numbers{3, 2});
  CHECK(has(refusal("GPU-1a2,0", 2), "2 GPUs (1, 2) have a UUID that begins so"));
  CHECK_THROWS_WITH(parse_device_list("GPU-7c1e", PresentCards{4, {}}),
                    ContainsSubstring("not known here"));
}

TEST_CASE("MIG slices are refused with the reason") {
  const std::string text = refusal("MIG-aaaa,MIG-bbbb", 2);
  CHECK(has(text, "MIG-aaaa: is a MIG slice"));
  CHECK(has(text, "MIG-bbbb"));
  CHECK(has(text, "no peer access"));
  CHECK(has(text, "whole cards"));
}

TEST_CASE("what is no entry is refused and never taken for a number") {
  for (const char* list :
       {"a", "1a", "0x1", "1.0", "+1", "1;2", "0 1", "all", "none", "gpu-7c1e", "--1"}) {
    INFO(list);
    CHECK(has(refusal(list, 1), "neither a number nor a UUID"));
  }
  for (const char* list : {"0,,1", "0,1,", ",0", ","}) {
    INFO(list);
    CHECK(has(refusal(list, 1), "an entry is empty"));
  }
  const std::string all = refusal("x,0,0,MIG-1", 1);  // all at once
  CHECK(has(all, "x: is neither"));
  CHECK(has(all, "GPU 0 twice"));
  CHECK(has(all, "MIG-1: is a MIG slice"));
}

TEST_CASE("the message for a long or unreadable list stays short") {
  std::string list;
  for (int i = 0; i < 20000; ++i) list += "x" + std::to_string(i) + "\x1b,";
  const std::string text = refusal(list, 1);
  CHECK(text.size() < 6000);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(has(text, "x0?: is neither"));
  CHECK(refusal(std::string(50000, ','), 1).size() < 300);  // the same is said once
}

TEST_CASE("cards of different models need one order of counting") {
  CHECK(device_order_warning({"A", "A"}, std::nullopt).empty());
  CHECK(device_order_warning({"A", "B"}, "PCI_BUS_ID").empty());
  CHECK(device_order_warning({"A", "", "A"}, std::nullopt).empty());
  CHECK(has(device_order_warning({"A", "", "B"}, std::nullopt), "(A, B)"));
  CHECK(has(device_order_warning({"A", "A", "B"}, std::nullopt), "CUDA_DEVICE_ORDER=PCI_BUS_ID"));
  CHECK(has(device_order_warning({"A", "B"}, "FASTEST_FIRST"), "CUDA_DEVICE_ORDER=PCI_BUS_ID"));
}
