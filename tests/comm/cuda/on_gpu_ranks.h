// Ranks on GPUs, for the tests of their communication.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/cuda/peer_communicator.h"
#include "common/comm/cuda/peer_staging.h"
#include "common/core/tensor.h"
#include "common/device/cuda/cuda_device.h"
#include "tests/comm/on_ranks.h"

// How ranks are put on GPUs and connected.
struct Connection {
  std::string name;
  bool nccl = false;
  tp::cuda::PeerOptions peer = {};
  bool one_gpu = false;  // all ranks on the first, else one each
  // Whether all_reduce adds in the order of tree_sum.h.
  bool in_tree_order() const { return !nccl; }
};

// All ways, with small staging buffers, so that larger tensors take several pieces.
std::vector<Connection> connections();

// Whether this machine has the GPUs for it.
bool runs_here(const Connection& connection, int ranks);

// What a rank of these tests works with.
struct GpuContext {
  tp::Communicator& comm;
  tp::cuda::CudaDevice& device;
  tp::Group& group;

  template <class T>
  tp::Tensor upload(const std::vector<T>& values) const {
    const std::vector<T> some(1);  // a tensor without elements has an address, too
    return device.write(tp::view_of(values.empty() ? some.data() : values.data(),
                                    {static_cast<std::int64_t>(values.size())}),
                        "test");
  }
  template <class T>
  std::vector<T> download(const tp::Tensor& tensor) const {
    const tp::Tensor host = device.download(tensor);
    const auto* const data = reinterpret_cast<const T*>(host.view().data);
    return {data, data + host.shape().elements()};
  }
};
using GpuBody = std::function<void(const GpuContext&)>;

// As on_ranks, with a GPU for each rank. `before` is called before a rank has its communicator.
std::vector<RankEnd> on_gpu_ranks(
    const Connection& connection,
    int ranks,
    std::chrono::milliseconds timeout,
    const GpuBody& body,
    const std::function<void(int rank)>& before = [](int) {});
