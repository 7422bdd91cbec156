#include "common/comm/communicator.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "common/core/error.h"

namespace tp {

namespace {

void check_contiguous(Op op, ConstTensorView x) {
  if (!x.contiguous())
    throw Error(
        ErrorKind::rank,
        fmt::format(
            "{}: the tensor's rows are {} elements apart, but have {}; it must be contiguous",
            name_of(op), x.row_stride, x.row_elements()));
}

void check_summable(Op op, ConstTensorView x) {
  if (x.dtype != DType::f32 && x.dtype != DType::bf16)
    throw Error(ErrorKind::rank, fmt::format("{}: dtype {}; f32 or bf16 can be summed", name_of(op),
                                             name_of(x.dtype)));
}

void check_part(Op op, ConstTensorView part, ConstTensorView whole, int ranks) {
  check_contiguous(op, part);
  check_contiguous(op, whole);
  check_equal(name_of(op), "elements of part * ranks", part.shape.elements() * ranks,
              "elements of whole", whole.shape.elements());
  if (part.dtype != whole.dtype)
    throw Error(ErrorKind::rank,
                fmt::format("{}: part is {}, whole is {}; they must be equal", name_of(op),
                            name_of(part.dtype), name_of(whole.dtype)));
}

void check_rank(Op op, int rank, int ranks) {
  if (rank < 0 || rank >= ranks)
    throw Error(ErrorKind::rank,
                fmt::format("{}: rank {} of a group of {}", name_of(op), rank, ranks));
}

}  // namespace

// Numbers the call, moves the data and writes the ledger.
template <class Move>
void Communicator::run(Call call, std::string_view label, const Move& move) {
  call.set_label(label);
  call_ = call;
  const auto start = std::chrono::steady_clock::now();
  move(call);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  if (recording_)
    recorded_.push_back(call);
  else
    ledger_.add(call, size(), took.count());
}

std::uint64_t& Communicator::number(Op op, int peer) {
  if (op != Op::send && op != Op::recv) return collectives_;
  std::vector<std::uint64_t>& numbers = op == Op::send ? sent_ : received_;
  numbers.resize(static_cast<std::size_t>(size()));
  return numbers[static_cast<std::size_t>(peer)];
}

void Communicator::start_recording() {
  recorded_.clear();
  recording_ = true;
}

std::vector<Call> Communicator::stop_recording() {
  recording_ = false;
  return std::exchange(recorded_, {});
}

void Communicator::replayed(std::span<const Call> calls) {
  for (const Call& recorded : calls) {
    call_ = recorded;
    call_.sequence = ++number(recorded.op, recorded.peer);
    ledger_.add(call_, size(), 0);
  }
  do_replayed(calls);
}

void Communicator::all_reduce(TensorView x, std::string_view label) {
  check_contiguous(Op::all_reduce, x);
  check_summable(Op::all_reduce, x);
  run({++collectives_, Op::all_reduce, x.dtype, -1, x.shape.elements(), {}}, label,
      [&](const Call& call) { do_all_reduce(call, x); });
}

void Communicator::all_gather(ConstTensorView part, TensorView whole, std::string_view label) {
  check_part(Op::all_gather, part, whole, size());
  run({++collectives_, Op::all_gather, part.dtype, -1, whole.shape.elements(), {}}, label,
      [&](const Call& call) { do_all_gather(call, part, whole); });
}

void Communicator::reduce_scatter(ConstTensorView whole, TensorView part, std::string_view label) {
  check_part(Op::reduce_scatter, part, whole, size());
  check_summable(Op::reduce_scatter, whole);
  run({++collectives_, Op::reduce_scatter, part.dtype, -1, whole.shape.elements(), {}}, label,
      [&](const Call& call) { do_reduce_scatter(call, whole, part); });
}

void Communicator::gather(ConstTensorView part,
                          TensorView whole,
                          int root,
                          std::string_view label) {
  check_rank(Op::gather, root, size());
  check_contiguous(Op::gather, part);
  if (rank() == root) check_part(Op::gather, part, whole, size());
  run({++collectives_, Op::gather, part.dtype, root, part.shape.elements() * size(), {}}, label,
      [&](const Call& call) { do_gather(call, part, whole); });
}

void Communicator::broadcast(TensorView x, int root, std::string_view label) {
  check_rank(Op::broadcast, root, size());
  check_contiguous(Op::broadcast, x);
  run({++collectives_, Op::broadcast, x.dtype, root, x.shape.elements(), {}}, label,
      [&](const Call& call) { do_broadcast(call, x); });
}

void Communicator::send(ConstTensorView x, int to, std::string_view label) {
  check_rank(Op::send, to, size());
  check_contiguous(Op::send, x);
  if (to == rank()) throw Error(ErrorKind::rank, fmt::format("send: rank {} to itself", to));
  run({++number(Op::send, to), Op::send, x.dtype, to, x.shape.elements(), {}}, label,
      [&](const Call& call) { do_send(call, x); });
}

void Communicator::recv(TensorView x, int from, std::string_view label) {
  check_rank(Op::recv, from, size());
  check_contiguous(Op::recv, x);
  if (from == rank()) throw Error(ErrorKind::rank, fmt::format("recv: rank {} from itself", from));
  run({++number(Op::recv, from), Op::recv, x.dtype, from, x.shape.elements(), {}}, label,
      [&](const Call& call) { do_recv(call, x); });
}

void Communicator::barrier(std::string_view label) {
  run({++collectives_, Op::barrier, DType::f32, -1, 0, {}}, label,
      [&](const Call& call) { do_barrier(call); });
}

}  // namespace tp
