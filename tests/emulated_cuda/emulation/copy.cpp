// Copies and fills.
#include <cstring>

#include <cuda_runtime.h>

#include "capture.h"
#include "device.h"
#include "execution.h"
#include "memory.h"
#include "peer_fault.h"
#include "report.h"
#include "stream.h"

namespace emulated_cuda {
namespace {

// A rectangle of bytes: `rows` rows of `row_bytes`, the beginnings of two rows `pitch` bytes apart.
struct Rectangle {
  char* first;
  std::size_t pitch;
  std::size_t row_bytes;
  std::size_t rows;

  std::size_t span_bytes() const { return rows == 0 ? 0 : (rows - 1) * pitch + row_bytes; }
  char* row(std::size_t index) const { return first + index * pitch; }
};

// What kind of memory an address is. Memory the library does not know is the host's own, which may
// be swapped out.
enum class Place : std::uint8_t { pageable, pinned, device };
struct Side {
  Place place = Place::pageable;
  Allocation* allocation = nullptr;
};
Side side_of(const void* address) {
  const Quiet quiet;
  Allocation* const allocation = find_allocation(address);
  if (allocation == nullptr) {
    return {};
  }
  return {allocation->device == kPinnedHost ? Place::pinned : Place::device, allocation};
}

// Checks one side of a copy against what the caller says it is.
Side check_side(const Rectangle& part,
                bool says_device,
                bool says_host,
                const char* function,
                const char* argument) {
  const Side side = side_of(part.first);
  if (says_device || side.place != Place::pageable) {
    require_device_memory(part.first, {function, argument, part.span_bytes(), kAnyDevice});
  }
  if (says_device && side.place == Place::pinned) {
    report("wrong kind of copy",
           text("%s: %s is pinned host memory, but the kind says device", function, argument));
  }
  if (says_host && side.place == Place::device) {
    report("wrong kind of copy",
           text("%s: %s is device memory, but the kind says host", function, argument));
  }
  return side;
}

bool is_faulty_path(const Side& a, const Side& b) {
  return a.place == Place::device && b.place == Place::device &&
         is_faulty_pair(a.allocation->device, b.allocation->device);
}

void copy_rows(const Rectangle& to, const Rectangle& from, bool faulty) {
  const Quiet quiet;
  for (std::size_t row = 0; row < to.rows; ++row) {
    if (faulty) {
      copy_wrongly(to.row(row), from.row(row), to.row_bytes);
    } else {
      std::memmove(to.row(row), from.row(row), to.row_bytes);
    }
  }
}

void note_read(const Rectangle& part) {
  for (std::size_t row = 0; row < part.rows; ++row) {
    emulated_cuda::note_read(part.row(row), part.row_bytes);
  }
}

void note_write(const Rectangle& part) {
  for (std::size_t row = 0; row < part.rows; ++row) {
    emulated_cuda::note_write(part.row(row), part.row_bytes);
  }
}

// What a copy from pageable memory has taken before it returned.
struct Stage {
  std::vector<char> bytes;
  Rectangle rows;

  explicit Stage(const Rectangle& from) : bytes(from.rows * from.row_bytes), rows(from) {
    rows.first = bytes.data();
    rows.pitch = from.row_bytes;
    copy_rows(rows, from, false);
  }
};

std::shared_ptr<const Stage> stage(const Rectangle& from) {
  note_read(from);
  const Quiet quiet;
  return std::make_shared<const Stage>(from);
}

// A copy that waits in a stream, or in a graph.
struct Copy {
  const char* function;
  Rectangle to;
  Side to_side;
  Rectangle from;
  Side from_side;
  std::shared_ptr<const Stage> staged;  // instead of a pageable source

  void operator()(Stream& stream) const {
    Execution execution(stream.device, function, {});
    open(execution, to, to_side, "dst");
    open(execution, from, from_side, "src");
    if (staged == nullptr) {
      note_read(from);
    }
    note_write(to);
    copy_rows(to, staged == nullptr ? from : staged->rows, is_faulty_path(to_side, from_side));
  }

  void open(Execution& execution,
            const Rectangle& part,
            const Side& side,
            const char* argument) const {
    const Quiet quiet;
    if (side.place != Place::pageable) {
      execution.open(
          require_device_memory(part.first, {function, argument, part.span_bytes(), kAnyDevice}));
    }
  }
};

// A graph's copies find pageable memory as it is at each replay, if it still exists. Pinned memory
// says what is meant.
void refuse_pageable_capture(const Stream& stream, const char* function) {
  const Quiet quiet;
  const std::lock_guard lock(stream_mutex());
  if (is_capturing(stream)) {
    report("wrong capture",
           text("%s: a graph would copy pageable host memory; use cudaMallocHost", function));
  }
}

cudaError_t copy(const char* function,
                 const Rectangle& to,
                 const Rectangle& from,
                 cudaMemcpyKind kind,
                 cudaStream_t handle) {
  Stream& stream = stream_of(handle, function);
  if (to.rows == 0 || to.row_bytes == 0) {
    return cudaSuccess;
  }
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const bool says_all = kind != cudaMemcpyDefault;
  Copy work = {function,
               to,
               check_side(to, to_device, says_all && !to_device, function, "dst"),
               from,
               check_side(from, from_device, says_all && !from_device, function, "src"),
               nullptr};
  const bool to_pageable = work.to_side.place == Place::pageable;
  const bool from_pageable = work.from_side.place == Place::pageable;
  if (to_pageable || from_pageable) {
    refuse_pageable_capture(stream, function);
  }
  if (from_pageable) {
    work.staged = stage(from);
  }
  const cudaError_t result = enqueue(stream, std::make_unique<Task>(function, std::move(work)));
  if (to_pageable) {  // such a copy returns when it is done
    synchronize(stream);
  }
  return result;
}

Rectangle line(const void* first, std::size_t bytes) {
  return {static_cast<char*>(const_cast<void*>(first)), bytes, bytes, 1};
}

}  // namespace
}  // namespace emulated_cuda

using namespace emulated_cuda;

cudaError_t cudaMemcpyAsync(
    void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy("cudaMemcpyAsync", line(to, bytes), line(from, bytes), kind, stream);
}

cudaError_t cudaMemcpy2DAsync(void* to,
                              std::size_t to_pitch,
                              const void* from,
                              std::size_t from_pitch,
                              std::size_t row_bytes,
                              std::size_t rows,
                              cudaMemcpyKind kind,
                              cudaStream_t stream) {
  if (row_bytes > to_pitch || row_bytes > from_pitch) {
    return fail(cudaErrorInvalidPitchValue);
  }
  return copy("cudaMemcpy2DAsync", {static_cast<char*>(to), to_pitch, row_bytes, rows},
              {static_cast<char*>(const_cast<void*>(from)), from_pitch, row_bytes, rows}, kind,
              stream);
}

cudaError_t cudaMemcpyPeerAsync(void* to,
                                int to_device,
                                const void* from,
                                int from_device,
                                std::size_t bytes,
                                cudaStream_t stream) {
  for (const auto& [address, device, argument] :
       {std::tuple(static_cast<const void*>(to), to_device, "dst"),
        std::tuple(from, from_device, "src")}) {
    const Side side = side_of(address);
    if (bytes > 0 && side.place == Place::device && side.allocation->device != device) {
      report("memory of another device",
             text("cudaMemcpyPeerAsync: %s is said to be on device %d, but it points ", argument,
                  device) +
                 describe_address(address));
    }
  }
  return copy("cudaMemcpyPeerAsync", line(to, bytes), line(from, bytes), cudaMemcpyDeviceToDevice,
              stream);
}

cudaError_t cudaMemsetAsync(void* address, int value, std::size_t bytes, cudaStream_t handle) {
  Stream& stream = stream_of(handle, "cudaMemsetAsync");
  if (bytes == 0) {
    return cudaSuccess;
  }
  require_device_memory(address, {"cudaMemsetAsync", "devPtr", bytes, kAnyDevice});
  return enqueue(stream, std::make_unique<Task>("cudaMemsetAsync", [=](Stream& where) {
                   Execution execution(where.device, "cudaMemsetAsync", {});
                   execution.open(require_device_memory(
                       address, {"cudaMemsetAsync", "devPtr", bytes, kAnyDevice}));
                   note_write(address, bytes);
                   const Quiet quiet;
                   std::memset(address, value, bytes);
                 }));
}
