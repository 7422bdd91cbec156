// One piece of work in a stream: a kernel, a copy, an event, a collective, a whole graph.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sanitizers.h"

struct CUstream_st;

namespace emulated_cuda {

using Stream = ::CUstream_st;

class Work {
 public:
  virtual ~Work() = default;

  // Called once, when it has got its place in a stream and will run; not when a graph captures it.
  virtual void accept(Stream& /*stream*/) {}

  // Tries to do it. False if it has to wait for something else: then it is tried again later.
  // Called by one thread at a time, in the stream that is given; no lock is held.
  virtual bool run(Stream& stream) = 0;

  // Where run() returned false: the streams whose own work must be done first.
  virtual std::vector<Stream*> waits_for() const { return {}; }

  // The same work once more, for a launch of the graph that captured it.
  virtual std::unique_ptr<Work> again() const = 0;

  // For reports: what it is, and what it waits for.
  virtual std::string describe() const = 0;

  // What the host did before it put this into a stream.
  OrderPoint& enqueued() { return enqueued_; }

 private:
  OrderPoint enqueued_;
};

// Work that never waits.
class Task : public Work {
 public:
  using Body = std::function<void(Stream&)>;
  Task(std::string name, Body body) : name_(std::move(name)), body_(std::move(body)) {}

  bool run(Stream& stream) override {
    body_(stream);
    return true;
  }
  std::unique_ptr<Work> again() const override { return std::make_unique<Task>(*this); }
  std::string describe() const override { return name_; }

 private:
  std::string name_;
  Body body_;
};

}  // namespace emulated_cuda
