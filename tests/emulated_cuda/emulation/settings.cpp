#include "settings.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace emulated_cuda {
namespace {

[[noreturn]] void refuse(const char* variable, const std::string& value, const char* right) {
  std::fprintf(stderr, "emulated CUDA: %s=%s is not one of: %s\n", variable, value.c_str(), right);
  std::exit(2);
}

// The whole of the text as a number of the range, or a refusal.
double number(
    const char* variable, const std::string& value, double least, double most, const char* right) {
  char* end = nullptr;
  const double parsed = std::strtod(value.c_str(), &end);
  if (value.empty() || *end != '\0' || !(parsed >= least && parsed <= most)) {
    refuse(variable, value, right);
  }
  return parsed;
}

void read_order(const char* variable, const std::string& value, Settings& result) {
  constexpr const char* kRight = "forward, reverse, random, random:SEED";
  if (value == "forward" || value == "reverse") {
    result.order = value == "forward" ? Order::forward : Order::reverse;
    return;
  }
  if (value.rfind("random", 0) != 0 || (value.size() > 6 && value[6] != ':')) {
    refuse(variable, value, kRight);
  }
  result.order = Order::random;
  if (value.size() > 6) {
    result.seed = static_cast<unsigned>(number(variable, value.substr(7), 0, 4e9, kRight));
  }
}

// "wrong:A-B" or "wrong:A-B:KIND".
void read_peer(const char* variable, const std::string& value, Settings& result) {
  constexpr const char* kRight =
      "all, none, wrong:A-B, wrong:A-B:KIND with KIND unchanged, swapped or bitflip";
  if (value == "all" || value == "none") {
    result.peer_access = value == "all";
    return;
  }
  int end = 0;
  if (std::sscanf(value.c_str(), "wrong:%d-%d%n", &result.faulty_peer_a, &result.faulty_peer_b,
                  &end) != 2) {
    refuse(variable, value, kRight);
  }
  const std::string kind = value.substr(static_cast<std::size_t>(end));
  if (kind.empty() || kind == ":bitflip") {
    result.peer_fault = PeerFault::bitflip;
  } else if (kind == ":unchanged") {
    result.peer_fault = PeerFault::unchanged;
  } else if (kind == ":swapped") {
    result.peer_fault = PeerFault::swapped;
  } else {
    refuse(variable, value, kRight);
  }
}

void read_failing_call(const char* variable, const std::string& value, Settings& result) {
  const std::size_t colon = value.find(':');
  constexpr const char* kRight = "RANK:CALL, for example 1:3; calls count from 1";
  if (colon == std::string::npos) {
    refuse(variable, value, kRight);
  }
  result.failing_rank = static_cast<int>(number(variable, value.substr(0, colon), 0, 1e6, kRight));
  result.failing_call =
      static_cast<std::uint64_t>(number(variable, value.substr(colon + 1), 1, 1e9, kRight));
}

// As the driver reads it: numbers between commas, up to the first one that no device has. All devices are alike, so only
// their number counts.
void read_visible(const char* /*variable*/, const std::string& value, Settings& result) {
  int visible = 0;
  const char* at = value.c_str();
  for (char* end = nullptr;; at = end + 1) {
    const long device = std::strtol(at, &end, 10);
    if (end == at || (*end != ',' && *end != '\0') || device < 0 || device >= result.devices) {
      break;
    }
    ++visible;
    if (*end == '\0') {
      break;
    }
  }
  result.devices = visible;
}

Settings read() {
  Settings result;
  const auto if_set = [&result](const char* variable, auto use) {
    if (const char* value = std::getenv(variable)) {
      use(variable, std::string(value), result);
    }
  };
  if_set("TP_EMULATED_DEVICES", [](const char* variable, const std::string& value, Settings& s) {
    s.devices = static_cast<int>(number(variable, value, 0, 64, "0 to 64"));
  });
  if_set("CUDA_VISIBLE_DEVICES", read_visible);
  if_set("TP_EMULATED_ORDER", read_order);
  if_set("TP_EMULATED_STREAMS", [](const char* variable, const std::string& value, Settings& s) {
    if (value != "eager" && value != "lazy") {
      refuse(variable, value, "eager, lazy");
    }
    s.lazy = value == "lazy";
  });
  if_set("TP_EMULATED_MEMORY_MIB", [](const char* variable, const std::string& value, Settings& s) {
    s.memory_bytes = static_cast<std::size_t>(number(variable, value, 1, 1 << 20, "1 to 1048576"))
                     << 20;
  });
  if_set("TP_EMULATED_PEER", read_peer);
  if_set("TP_EMULATED_TIMEOUT_S", [](const char* variable, const std::string& value, Settings& s) {
    s.timeout_s = number(variable, value, 0.1, 86400, "0.1 to 86400");
  });
  if_set("TP_EMULATED_NCCL_FAULT", read_failing_call);
  return result;
}

}  // namespace

const Settings& settings() {
  static const Settings result = read();
  return result;
}

}  // namespace emulated_cuda
