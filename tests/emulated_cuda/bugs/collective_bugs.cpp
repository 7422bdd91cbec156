// Ranks that do not call the same collective, or with the wrong memory or stream.
#include "bug_kernels.h"
#include "on_two_ranks.h"

namespace emulated_test {
namespace {

bool collective_operation(bool wrong) {
  return on_ranks(Floats(64, 2.0f), [wrong](const Rank& self) {
    const ncclRedOp_t operation = wrong && self.rank == 1 ? ncclMax : ncclSum;
    check(ncclAllReduce(self.data, self.data, 64, ncclFloat, operation, self.comm, self.stream));
  });
}

bool collective_count(bool wrong) {
  return on_ranks(Floats(64, 2.0f), [wrong](const Rank& self) {
    check(sum(self, wrong && self.rank == 1 ? 32 : 64));
  });
}

bool collective_type(bool wrong) {
  return on_ranks(Floats(64, 2.0f), [wrong](const Rank& self) {
    const ncclDataType_t type = wrong && self.rank == 1 ? ncclInt32 : ncclFloat;
    check(ncclAllReduce(self.data, self.data, 64, type, ncclSum, self.comm, self.stream));
  });
}

bool collective_order(bool wrong) {
  return on_ranks(Floats(64, 2.0f), [wrong](const Rank& self) {
    const auto broadcast = [&self] {
      check(ncclBroadcast(self.data, self.data, 64, ncclFloat, 0, self.comm, self.stream));
    };
    if (wrong && self.rank == 1) {
      broadcast();
    }
    check(sum(self, 64));
    if (!wrong || self.rank == 0) {
      broadcast();
    }
  });
}

bool collective_missing_rank(bool wrong) {
  return on_ranks(Floats(64, 2.0f), [wrong](const Rank& self) {
    if (!wrong || self.rank == 0) {
      check(sum(self, 64));
    }
  });
}

// Bytes instead of elements: all ranks agree, but their memory is not that long.
bool collective_counts_bytes(bool wrong) {
  return on_ranks(Floats(64, 2.0f),
                  [wrong](const Rank& self) { check(sum(self, wrong ? 256 : 64)); });
}

// On another stream than the kernel whose result it takes, without an event.
bool collective_on_other_stream(bool wrong) {
  return on_ranks(Floats(64, 8.0f), [wrong](const Rank& self) {
    const TestStream other(self.rank);
    const DeviceArray<float> four(self.stream, Floats(64, 4.0f));
    self.stream.synchronize();
    copy_elements(self.data, four.data(), 64, false, self.stream);
    const TestStream& stream = wrong ? other : self.stream;
    check(ncclAllReduce(self.data, self.data, 64, ncclFloat, ncclSum, self.comm, stream));
    stream.synchronize();
  });
}

}  // namespace

std::vector<Bug> collective_bugs() {
  return {
      {"collective_operation", collective_operation},
      {"collective_count", collective_count},
      {"collective_type", collective_type},
      {"collective_order", collective_order},
      {"collective_missing_rank", collective_missing_rank},
      {"collective_counts_bytes", collective_counts_bytes},
      {"collective_on_other_stream", collective_on_other_stream},
  };
}

}  // namespace emulated_test
