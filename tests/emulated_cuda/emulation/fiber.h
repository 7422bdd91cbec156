// A fiber: a stack of its own, on which code can stop in the middle of a function and go on later.
#pragma once

#include <cstddef>
#include <functional>

#include <boost/context/fiber.hpp>

namespace emulated_cuda {

class Fiber {
 public:
  // Nothing runs yet. The body runs until is_closing(), then it must return.
  explicit Fiber(std::function<void(Fiber&)> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Goes on in the fiber and returns when that suspends itself or its body has returned.
  void resume();

  // Called by the body: goes back to who resumed it.
  void suspend();

  // True when the destructor resumes the body for the last time.
  bool is_closing() const { return closing_; }

  struct StackLimits {
    const void* bottom = nullptr;
    std::size_t bytes = 0;
  };

 private:
  bool begun_ = false;
  bool closing_ = false;
  std::function<void(Fiber&)> body_;
  StackLimits own_stack_;  // AddressSanitizer has to know which stack is in use
  StackLimits outer_stack_;
  boost::context::fiber inside_;   // to continue the body
  boost::context::fiber outside_;  // to continue who resumed it
};

}  // namespace emulated_cuda
