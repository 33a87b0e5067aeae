// A group of processes, through libtorch's own c10d: TCPStore for the rendezvous, ProcessGroupGloo for the collectives.
// There is one group in a process, and it is never destroyed: its destructor waits for pending work.
#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Logging.h>
#include <torch/version.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "engine.h"

#if TORCH_VERSION_MAJOR < 2
// Debian's libtorch logs through glog, which reads its variables before this addon is loaded.
namespace fLI {
extern __attribute__((weak, visibility("default"))) int32_t FLAGS_minloglevel;
}
#endif

namespace astra {

namespace {

using Milliseconds = std::chrono::milliseconds;

// A pending receive must not time out: it ends only with the group, or with the process at the other end.
constexpr Milliseconds kForever = std::chrono::hours(24 * 365);
// Time that JavaScript has for a final message before the process exits, even during a computation.
constexpr Milliseconds kLastWords(2000);
// Instead of a rank: one that has reported its failure itself.
constexpr int kAnnounced = -1;
// While the ranks connect: interval between two heartbeats, and time from the last one to the verdict.
constexpr Milliseconds kPulse(250);
constexpr Milliseconds kSilence(3000);
// Added to a rank's heartbeat counter once it has connected to all others, and needs no more heartbeats.
constexpr int64_t kMet = int64_t{1} << 40;

// One collective: `work` runs on the group's thread and may block; `finish` and the callback run in JavaScript's.
struct Job {
  std::function<void()> work;
  std::function<napi_value(napi_env)> finish;
  napi_ref callback = nullptr;
  std::string error;
};

struct Group {
  int rank = 0;
  int size = 1;
  Engine* engine = nullptr;
  napi_threadsafe_function deliver = nullptr;
  napi_threadsafe_function lost = nullptr;
  // Held for the lifetime of the process.
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> collectives;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> watch;
  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<Job*> queue;
  std::atomic<bool> ending{false};
  std::atomic<bool> isLost{false};
  std::atomic<bool> isMeeting{true};
  std::atomic<int64_t> lastAnswer{0};  // of the store, on the steady clock, in ms
  int pending = 0;  // only JavaScript's thread reads and writes it
};

// Never freed: detached threads use it until the process ends.
Group* group = nullptr;

void runJobs(Group* own) {
  for (;;) {
    Job* job = nullptr;
    {
      std::unique_lock<std::mutex> lock(own->mutex);
      own->arrived.wait(lock, [&] { return !own->queue.empty(); });
      job = own->queue.front();
      own->queue.pop_front();
    }
    try {
      job->work();
    } catch (...) {
      bool memory = false;
      job->error = currentExceptionMessage(&memory);
      if (job->error.empty()) job->error = "the collective failed";
    }
    napi_call_threadsafe_function(own->deliver, job, napi_tsfn_blocking);
  }
}

// callback(error or null, result)
void deliverJob(napi_env env, napi_value, void*, void* data) {
  std::unique_ptr<Job> job(static_cast<Job*>(data));
  if (env == nullptr) return;
  if (--group->pending == 0) napi_unref_threadsafe_function(env, group->deliver);
  napi_value callback = nullptr, receiver = nullptr, arguments[2] = {nullptr, nullptr};
  napi_get_undefined(env, &receiver);
  napi_get_undefined(env, &arguments[1]);
  try {
    if (job->error.empty() && job->finish) arguments[1] = job->finish(env);
  } catch (...) {
    bool memory = false;
    job->error = currentExceptionMessage(&memory);
  }
  if (job->error.empty()) {
    napi_get_null(env, &arguments[0]);
  } else {
    napi_create_string_utf8(env, job->error.data(), job->error.size(), &arguments[0]);
  }
  napi_get_reference_value(env, job->callback, &callback);
  napi_call_function(env, receiver, callback, 2, arguments, nullptr);
  napi_delete_reference(env, job->callback);
}

void enqueue(Call& call, size_t callback, std::unique_ptr<Job> job) {
  check(call.env, napi_create_reference(call.env, call.argument(callback, "callback"), 1, &job->callback), "a callback");
  if (group->pending++ == 0) napi_ref_threadsafe_function(call.env, group->deliver);
  {
    const std::lock_guard<std::mutex> lock(group->mutex);
    group->queue.push_back(job.release());
  }
  group->arrived.notify_one();
}

void requireFunction(Call& call, size_t index, const char* name) {
  napi_valuetype type = napi_undefined;
  napi_typeof(call.env, call.argument(index, name), &type);
  if (type != napi_function) throw Refusal(std::string(name) + " must be a function");
}

Group& requireGroup(Call& call) {
  if (group == nullptr || !group->collectives) throw Refusal("this process has joined no group");
  if (group->engine != call.engine) throw Refusal("the group belongs to another thread of this process");
  return *group;
}

// Reports to JavaScript, once, which rank has exited, and ends the process if JavaScript does not.
void reportLost(int rank) {
  if (group->ending || group->isLost.exchange(true)) return;
  napi_call_threadsafe_function(group->lost, reinterpret_cast<void*>(static_cast<intptr_t>(rank)), napi_tsfn_nonblocking);
  std::thread([rank] {
    std::this_thread::sleep_for(kLastWords);
    if (rank != kAnnounced && group->rank == (rank == 0 ? 1 : 0)) {
      const std::string line = "\nrank " + std::to_string(rank) + " has ended; so do the others\n";
      [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
    }
    _exit(EXIT_FAILURE);
  }).detach();
}

// Sends the number of the exited rank to all waiting ranks except one.
void tell(int rank, int except) {
  for (int each = 0; each < group->size; ++each) {
    if (each == group->rank || each == except || (group->rank != 0 && each != 0)) continue;
    try {
      std::vector<at::Tensor> sent{at::full({1}, rank, at::kLong)};
      group->watch->send(sent, each, 0)->wait(Milliseconds(500));
    } catch (...) {
      // It has also exited.
    }
  }
}

void deliverLost(napi_env env, napi_value callback, void*, void* data) {
  if (env == nullptr) return;
  napi_value receiver = nullptr, rank = nullptr;
  napi_get_undefined(env, &receiver);
  napi_create_int32(env, static_cast<int32_t>(reinterpret_cast<intptr_t>(data)), &rank);
  napi_call_function(env, receiver, callback, 1, &rank, nullptr);
}

// Rank 0 holds a pending receive from each other rank, and each other rank one from rank 0: a closed connection ends
// it at once, also while this process computes. Rank 0 then tells the others which rank has exited.
void watchRank(int other) {
  int lost = other;
  std::vector<at::Tensor> received{at::full({1}, other, at::kLong)};
  try {
    group->watch->recv(received, other, 0)->wait();
    lost = static_cast<int>(*received[0].data_ptr<int64_t>());
  } catch (...) {
    // The connection is closed: that rank itself has exited.
  }
  if (group->ending) return;
  if (group->rank == 0) tell(lost, other);
  reportLost(lost);
}

int64_t now() {
  return std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Before the watch connects the ranks, they share only the store, which does not report that a rank has ended. So each rank
// increments a counter there: rank 0 checks those of the others, and they check its own. A rank that never connected is
// not reported: it may still start.
void showLife(c10d::Store& store) {
  const auto key = [](int rank) { return "pulse/" + std::to_string(rank); };
  struct Pulse {
    int64_t count = 0, at = 0;
  };
  std::vector<Pulse> pulses(group->size);
  const auto isSilent = [&](int other) {
    const int64_t count = store.add(key(other), 0);
    if (count != pulses[other].count) pulses[other] = {count, now()};
    return count > 0 && count < kMet && now() - pulses[other].at > kSilence.count();
  };
  while (group->isMeeting) {
    store.add(key(group->rank), 1);
    group->lastAnswer = now();
    if (group->rank == 0) {
      for (int other = 1; other < group->size; ++other) {
        if (!isSilent(other)) continue;
        store.add("lost", other);
        // The store may end with this process: the others read it first.
        std::this_thread::sleep_for(3 * kPulse);
        return reportLost(other);
      }
    } else {
      const int64_t lost = store.add("lost", 0);
      if (lost > 0 || isSilent(0)) return reportLost(static_cast<int>(lost));
    }
    std::this_thread::sleep_for(kPulse);
  }
  store.add(key(group->rank), kMet);
}

// Two threads, since a request to the store has no deadline.
void watchMeeting(c10::intrusive_ptr<c10d::Store> store) {
  group->lastAnswer = now();
  std::thread([store] {
    try {
      showLife(*store);
    } catch (...) {
      // The store's connection is closed.
      if (group->isMeeting) reportLost(0);
    }
  }).detach();
  std::thread([] {
    while (group->isMeeting) {
      if (now() - group->lastAnswer > kSilence.count() + 4 * kPulse.count()) return reportLost(0);
      std::this_thread::sleep_for(kPulse);
    }
  }).detach();
}

// A machine that disappears closes no connection: the system must probe it, which it does on idle connections, as the
// watch's always are. Its sockets are those that did not exist before.
void keepAlive(const std::vector<bool>& before) {
  const int on = 1, idle = 1, interval = 1, probes = 3;
  const unsigned int unanswered = 4000;  // milliseconds; the others are seconds
  for (int descriptor = 0; descriptor < static_cast<int>(before.size()); ++descriptor) {
    sockaddr_storage address = {};
    socklen_t length = sizeof address;
    if (before[descriptor] || getpeername(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0) continue;
    if (address.ss_family != AF_INET && address.ss_family != AF_INET6) continue;
    setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
#ifdef TCP_KEEPIDLE
    setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
#endif
#ifdef TCP_USER_TIMEOUT
    // For data in transit when the machine disappeared: the system would retransmit it for a quarter of an hour.
    setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered, sizeof unanswered);
#endif
  }
}

// The descriptors that are currently sockets.
std::vector<bool> sockets() {
  std::vector<bool> all(4096);
  for (size_t descriptor = 0; descriptor < all.size(); ++descriptor) {
    int type = 0;
    socklen_t length = sizeof type;
    all[descriptor] = getsockopt(static_cast<int>(descriptor), SOL_SOCKET, SO_TYPE, &type, &length) == 0;
  }
  return all;
}

c10::intrusive_ptr<c10d::ProcessGroupGloo> makeGroup(
    const char* prefix, const std::string& address, Milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  options->devices.push_back(interface != nullptr
                                 ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                                 : c10d::ProcessGroupGloo::createDeviceForHostname(address));
  auto store = c10::make_intrusive<c10d::PrefixStore>(prefix, group->store);
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, group->rank, group->size, options);
}

// joinGroup(host, port, listens, prefix, address, rank, size, connect timeout and timeout in ms, lost(rank), callback(error))
napi_value joinGroup(Call& call) {
  if (group != nullptr) throw Refusal("this process has joined a group already");
  const std::string host = call.text(0, "host");
  const bool listens = call.boolean(2, "listens");
  const std::string prefix = call.text(3, "prefix");
  const std::string address = call.text(4, "address");
  const auto between = [&](size_t index, const char* name, int64_t least, int64_t most) {
    const int64_t value = call.integer(index, name);
    if (value >= least && value <= most) return value;
    throw Refusal(std::string(name) + " must be between " + std::to_string(least) + " and " + std::to_string(most) +
                  ", got " + std::to_string(value));
  };
  const int64_t port = between(1, "port", 1, 65535);
  const int64_t size = between(6, "size", 1, 65536);
  const int64_t rank = between(5, "rank", 0, size - 1);
  const int64_t connectTimeout = between(7, "connectTimeout", 1, kForever.count());
  const int64_t timeout = between(8, "timeout", 1, kForever.count());
  requireFunction(call, 9, "lost");
  requireFunction(call, 10, "callback");
  // Errors are also thrown; c10d's log would print each with its C++ frames.
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", 0);
  c10::initLogging();
#if TORCH_VERSION_MAJOR < 2
  if (&fLI::FLAGS_minloglevel != nullptr) fLI::FLAGS_minloglevel = 3;
#endif
  auto own = std::make_unique<Group>();
  own->rank = static_cast<int>(rank);
  own->size = static_cast<int>(size);
  own->engine = call.engine;
  const napi_value title = makeText(call.env, "distributed");
  check(call.env,
        napi_create_threadsafe_function(call.env, nullptr, nullptr, title, 0, 1, nullptr, nullptr, nullptr, deliverJob,
                                        &own->deliver),
        "a thread-safe function");
  check(call.env,
        napi_create_threadsafe_function(call.env, call.arguments[9], nullptr, title, 0, 1, nullptr, nullptr, nullptr,
                                        deliverLost, &own->lost),
        "a thread-safe function");
  // A process waits only for the answers to its own requests.
  napi_unref_threadsafe_function(call.env, own->deliver);
  napi_unref_threadsafe_function(call.env, own->lost);
  group = own.release();
  std::thread(runJobs, group).detach();
  auto job = std::make_unique<Job>();
  job->work = [=] {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(port);
    options.isServer = listens;
    options.numWorkers = static_cast<size_t>(size);
    options.waitWorkers = false;
    options.timeout = Milliseconds(connectTimeout);
#if TORCH_VERSION_MAJOR > 1
    options.useLibUV = false;
#endif
    const auto connect = [&] {
      return c10::make_intrusive<c10d::PrefixStore>(prefix, c10::make_intrusive<c10d::TCPStore>(host, options));
    };
    group->store = connect();
    options.isServer = false;
    watchMeeting(connect());
    try {
      // Not the store's: its own thread would end the process on a connection error.
      const auto before = sockets();
      group->watch = makeGroup("watch", address, kForever);
      keepAlive(before);
      for (int other = 0; other < group->size; ++other) {
        if (other != group->rank && (group->rank == 0 || other == 0)) std::thread(watchRank, other).detach();
      }
      group->collectives = makeGroup("collectives", address, Milliseconds(timeout));
    } catch (...) {
      // If a rank has exited, that is the reason to report.
      std::this_thread::sleep_for(4 * kPulse);
      group->isMeeting = false;
      throw;
    }
    group->isMeeting = false;
  };
  enqueue(call, 10, std::move(job));
  return makeUndefined(call.env);
}

// Tensors below this size are sent together: each message has a fixed cost.
constexpr int64_t kAlone = 1 << 16;  // numbers

// Tensors being sent, in an order and layout that alone determine the last bits of a sum: large ones unchanged, the
// others in one contiguous CPU buffer.
struct Cargo {
  std::vector<at::Tensor> alone;   // rows that are the tensors' own memory
  std::vector<at::Tensor> packed;  // the others
  at::Tensor row;                  // where `packed` travel; undefined for none

  explicit Cargo(const std::vector<at::Tensor>& tensors) {
    c10::AutoGradMode mode(false);
    c10::ScalarType type = at::kFloat;
    for (const at::Tensor& each : tensors) {
      if (!each.defined()) throw Refusal("tensors must not hold null");
      if (!at::isFloatingType(each.scalar_type())) throw Refusal("tensors must be floating, got " + describeTensor(each));
      const at::Tensor own = each.detach();
      const bool isWide = own.scalar_type() == at::kFloat || own.scalar_type() == at::kDouble;
      if (isWide && own.device().is_cpu() && own.is_contiguous() && own.numel() >= kAlone) {
        alone.push_back(own.view({-1}));
      } else {
        packed.push_back(own);
        if (own.scalar_type() == at::kDouble) type = at::kDouble;
      }
    }
    std::vector<at::Tensor> rows;
    for (const at::Tensor& each : packed) rows.push_back(each.reshape({-1}).to(at::kCPU, type));
    if (!rows.empty()) row = at::cat(rows);
  }

  // Blocks.
  void travel(const std::function<void(std::vector<at::Tensor>&)>& send) const {
    for (const at::Tensor& each : alone) {
      std::vector<at::Tensor> own{each};
      send(own);
    }
    if (!row.defined() || row.numel() == 0) return;
    std::vector<at::Tensor> rows{row};
    send(rows);
  }

  void unpack() const {
    c10::AutoGradMode mode(false);
    int64_t start = 0;
    for (const at::Tensor& each : packed) {
      each.copy_(row.narrow(0, start, each.numel()).view(each.sizes()));
      start += each.numel();
    }
  }
};

void ship(Call& call, size_t callback, const std::vector<at::Tensor>& tensors,
          std::function<void(std::vector<at::Tensor>&)> send) {
  if (tensors.empty()) throw Refusal("tensors must not be empty");
  requireFunction(call, callback, "callback");
  const auto cargo = std::make_shared<Cargo>(tensors);
  auto job = std::make_unique<Job>();
  job->work = [cargo, send = std::move(send)] { cargo->travel(send); };
  job->finish = [cargo](napi_env env) {
    cargo->unpack();
    return makeUndefined(env);
  };
  enqueue(call, callback, std::move(job));
}

// allReduce([tensors], callback): each becomes its sum over the ranks
napi_value allReduce(Call& call) {
  Group& own = requireGroup(call);
  ship(call, 1, call.tensors(0, "tensors"),
       [&own](std::vector<at::Tensor>& rows) { own.collectives->allreduce(rows)->wait(); });
  return makeUndefined(call.env);
}

// broadcast([tensors], root, callback): each becomes that of the root
napi_value broadcast(Call& call) {
  Group& own = requireGroup(call);
  const int64_t root = call.integer(1, "root");
  if (root < 0 || root >= own.size) throw Refusal("root must be a rank of the group, got " + std::to_string(root));
  c10d::BroadcastOptions options;
  options.rootRank = root;
  ship(call, 2, call.tensors(0, "tensors"),
       [&own, options](std::vector<at::Tensor>& rows) { own.collectives->broadcast(rows, options)->wait(); });
  return makeUndefined(call.env);
}

// allGather(bytes, callback(error, [bytes of each rank]))
napi_value allGather(Call& call) {
  Group& own = requireGroup(call);
  void* data = nullptr;
  size_t length = 0;
  bool isBuffer = false;
  napi_is_buffer(call.env, call.argument(0, "bytes"), &isBuffer);
  if (!isBuffer) throw Refusal("bytes must be a Uint8Array");
  check(call.env, napi_get_buffer_info(call.env, call.arguments[0], &data, &length), "bytes");
  requireFunction(call, 1, "callback");
  const at::Tensor mine = at::empty({static_cast<int64_t>(length)}, at::kByte);
  if (length > 0) std::memcpy(mine.data_ptr(), data, length);
  auto all = std::make_shared<std::vector<at::Tensor>>();
  auto job = std::make_unique<Job>();
  job->work = [&own, mine, all] {
    const auto gather = [&own](const at::Tensor& tensor) {
      std::vector<std::vector<at::Tensor>> outputs(1);
      for (int rank = 0; rank < own.size; ++rank) outputs[0].push_back(at::empty_like(tensor));
      std::vector<at::Tensor> inputs{tensor};
      own.collectives->allgather(outputs, inputs)->wait();
      return outputs[0];
    };
    // All have the length of the longest, since Gloo requires equal lengths.
    int64_t longest = 0;
    std::vector<int64_t> lengths;
    for (const at::Tensor& each : gather(at::full({1}, mine.numel(), at::kLong))) {
      lengths.push_back(*each.data_ptr<int64_t>());
      longest = std::max(longest, lengths.back());
    }
    const at::Tensor padded = at::zeros({std::max<int64_t>(1, longest)}, at::kByte);
    padded.narrow(0, 0, mine.numel()).copy_(mine);
    const auto gathered = gather(padded);
    for (int rank = 0; rank < own.size; ++rank) all->push_back(gathered[rank].narrow(0, 0, lengths[rank]));
  };
  job->finish = [all](napi_env env) {
    std::vector<napi_value> buffers;
    for (const at::Tensor& each : *all) {
      napi_value buffer = nullptr;
      check(env, napi_create_buffer_copy(env, each.numel(), each.data_ptr(), nullptr, &buffer), "bytes");
      buffers.push_back(buffer);
    }
    return makeArray(env, buffers);
  };
  enqueue(call, 1, std::move(job));
  return makeUndefined(call.env);
}

// announceFailure(): this rank ends and has reported why, so that the others need not
napi_value announceFailure(Call& call) {
  if (group != nullptr && group->collectives && !group->ending.exchange(true)) tell(kAnnounced, -1);
  return makeUndefined(call.env);
}

// leaveGroup(): from now on the exit of another rank is not a failure
napi_value leaveGroup(Call& call) {
  if (group != nullptr) group->ending = true;
  return makeUndefined(call.env);
}

const Exports exports{{"joinGroup", joinGroup},
                      {"allReduce", allReduce},
                      {"broadcast", broadcast},
                      {"allGather", allGather},
                      {"announceFailure", announceFailure},
                      {"leaveGroup", leaveGroup}};

}  // namespace

}  // namespace astra
