#include "common/comm/cuda/nccl_variables.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace tp::cuda {

namespace {

constexpr NcclVariable kVariables[] = {
    {"NCCL_ALGO", "which algorithms may be chosen: Ring, Tree, NVLS, ...; for experiments"},
    {"NCCL_BUFFSIZE", "bytes of the buffers between two GPUs, 4194304 by default"},
    {"NCCL_COMM_BLOCKING", "1: calls block, so a lost rank is noticed later; leave it unset here"},
    {"NCCL_CONF_FILE", "a file with settings like these"},
    {"NCCL_CROSS_NIC", "whether rings and trees may use different network cards at their two ends"},
    {"NCCL_CUMEM_ENABLE", "0: memory is not allocated with CUDA's cuMem functions"},
    {"NCCL_DEBUG", "what is printed: VERSION, WARN (errors), INFO (also the links in use), TRACE"},
    {"NCCL_DEBUG_FILE", "where to; %h in the name is the host, %p the process"},
    {"NCCL_DEBUG_SUBSYS",
     "of which parts INFO tells: INIT, COLL, P2P, SHM, NET, GRAPH, TUNING, ..."},
    {"NCCL_IB_DISABLE",
     "1: no InfiniBand or RoCE between hosts, sockets instead; inside one host "
     "nothing changes"},
    {"NCCL_IB_GID_INDEX", "which address of a RoCE adapter is used"},
    {"NCCL_IB_HCA", "which InfiniBand adapters are used: prefixes, = exact names, ^ all but these"},
    {"NCCL_IB_TIMEOUT",
     "of InfiniBand's acknowledgements; it ends no wait for a rank that is lost"},
    {"NCCL_IGNORE_CPU_AFFINITY",
     "1: NCCL picks its CPU cores by the GPU, not by the job's affinity"},
    {"NCCL_LAUNCH_MODE", "PARALLEL or GROUP: how one process launches on several GPUs"},
    {"NCCL_MAX_NCHANNELS", "most channels (blocks of a kernel) per collective"},
    {"NCCL_MIN_NCHANNELS", "fewest channels (blocks of a kernel) per collective"},
    {"NCCL_NET", "which network module is used: IB, Socket, or one of a plugin"},
    {"NCCL_NET_GDR_LEVEL",
     "how far a network card may be from a GPU for direct access (GPUDirect "
     "RDMA): LOC, PIX, PXB, PHB, SYS; inside one host nothing changes"},
    {"NCCL_NET_GDR_READ", "0: direct access when receiving only, not when sending"},
    {"NCCL_NET_PLUGIN", "the library of a network plugin"},
    {"NCCL_NTHREADS", "threads of a kernel's block: 64, 128, 256 or 512"},
    {"NCCL_NVLS_ENABLE", "0: sums are not made inside NVLink switches (NVLink SHARP)"},
    {"NCCL_P2P_DISABLE", "1: GPUs do not access each other's memory over NVLink or PCIe"},
    {"NCCL_P2P_LEVEL", "how far GPUs may be apart to do so: LOC (never), NVL, PIX, PXB, PHB, SYS"},
    {"NCCL_PROTO", "which protocols may be chosen: LL, LL128, Simple; for experiments"},
    {"NCCL_SHM_DISABLE", "1: GPUs without access to each other use the network, not shared memory"},
    {"NCCL_SOCKET_FAMILY", "AF_INET or AF_INET6: only interfaces with such an address"},
    {"NCCL_SOCKET_IFNAME",
     "which network interfaces are used: prefixes, = exact names, ^ all but "
     "these; lo can only join ranks of one host"},
    {"NCCL_TOPO_DUMP_FILE", "a file to which the detected topology is written, as XML"},
    {"NCCL_TOPO_FILE", "a file with the topology, instead of what is detected"},
};

constexpr std::string_view kTimeout =
    "NCCL does not read it and has no time-out of its own; here --timeout-s sets the limit";
constexpr std::string_view kUnknown =
    "not known to this list; NCCL ignores names that it does not know";

}  // namespace

std::span<const NcclVariable> nccl_variables() {
  return kVariables;
}

std::string meaning_of_nccl_variable(std::string_view name) {
  if (name == "NCCL_TIMEOUT") return std::string(kTimeout);
  const auto known = std::find_if(std::begin(kVariables), std::end(kVariables),
                                  [&](const NcclVariable& v) { return v.name == name; });
  return std::string(known == std::end(kVariables) ? kUnknown : known->meaning);
}

std::string describe_nccl_environment(
    const std::vector<std::pair<std::string, std::string>>& environment) {
  const std::map<std::string, std::string> sorted(environment.begin(), environment.end());
  std::string set, unset;
  for (const auto& [name, value] : sorted)
    if (name.starts_with("NCCL_"))
      set += fmt::format("  {}={}\n      {}\n", name, value, meaning_of_nccl_variable(name));
  for (const NcclVariable& variable : kVariables)
    if (!sorted.contains(std::string(variable.name)))
      unset += fmt::format("  {:<26}{}\n", variable.name, variable.meaning);
  return fmt::format(
      "NCCL's environment variables that are set:\n{}\nCommon ones that are not set:\n{}",
      set.empty() ? "  none\n" : set, unset);
}

}  // namespace tp::cuda
