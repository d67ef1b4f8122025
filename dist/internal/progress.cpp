#include <cleave/dist/internal/progress.h>

#include <cleave/core/parallel.h>
#include <cleave/dist/internal/call.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>

namespace cleave::dist {
namespace {

using detail::kUnderWayBytes;
using detail::payload_bytes;

/// The progress thread's side of a communicator.
struct Group {
  std::vector<int> ranks;
  std::string name;
  std::unique_ptr<Communicator> communicator;  // made and used by the progress thread
};

/// A started call. Its counts and label are copies: the caller's need only live until `start` returns.
struct Task {
  Task(std::shared_ptr<Group> of, const Collective& given, int64_t payload)
      : group(std::move(of)),
        call(given),
        send_counts(given.send_counts.begin(), given.send_counts.end()),
        recv_counts(given.recv_counts.begin(), given.recv_counts.end()),
        label(given.label),
        checked(checked_mode()),
        bytes(payload) {
    call.send_counts = send_counts;
    call.recv_counts = recv_counts;
    call.label = label.c_str();
  }
  std::shared_ptr<Group> group;
  Collective call;
  std::vector<int64_t> send_counts, recv_counts;
  std::string label;
  bool checked;
  int64_t bytes;
  // Under the queue's mutex:
  bool done = false;
  std::exception_ptr error{};
};

}  // namespace

/// What the rank and its thread share. A Pending may outlive the thread, so it has a part in this.
struct Progress::Queue {
  std::mutex mutex;
  std::condition_variable started, ended;
  std::deque<std::shared_ptr<Task>> tasks;  // the first is being worked on
  int64_t bytes = 0;
  bool closing = false;
  std::exception_ptr unheard;  // of a call that nobody waits for

  void push(const std::shared_ptr<Task>& task) {
    std::unique_lock lock(mutex);
    ended.wait(lock, [&] { return tasks.empty() || bytes + task->bytes <= kUnderWayBytes; });
    bytes += task->bytes;
    tasks.push_back(task);
    started.notify_one();
  }
  void wait(Task& task) {
    std::unique_lock lock(mutex);
    ended.wait(lock, [&] { return task.done; });
    if (task.error) std::rethrow_exception(task.error);
  }
  /// The caller drops the call without having heard of its end: its buffers must be free all the same.
  void drop(Task& task) {
    std::unique_lock lock(mutex);
    ended.wait(lock, [&] { return task.done; });
    if (!unheard) unheard = task.error;
  }
  void wait_for_all() {
    std::unique_lock lock(mutex);
    ended.wait(lock, [&] { return tasks.empty(); });
  }
};

namespace {

class StartedCall : public Pending {
 public:
  StartedCall(std::shared_ptr<Progress::Queue> queue, std::shared_ptr<Task> task)
      : queue_(std::move(queue)), task_(std::move(task)) {}
  ~StartedCall() override {
    if (!heard_) queue_->drop(*task_);
  }
  void wait() override {
    heard_ = true;
    queue_->wait(*task_);
  }

 private:
  std::shared_ptr<Progress::Queue> queue_;
  std::shared_ptr<Task> task_;
  bool heard_ = false;
};

/// The rank's side: what it starts is queued.
class ProgressCommunicator : public Communicator {
 public:
  ProgressCommunicator(std::shared_ptr<Progress::Queue> queue, std::shared_ptr<Group> group, int rank)
      : Communicator(rank, static_cast<int>(group->ranks.size()), group->name),
        queue_(std::move(queue)),
        group_(std::move(group)) {}

 private:
  void run(const Collective& call) override { begin(call)->wait(); }
  std::unique_ptr<Pending> begin(const Collective& call) override {
    auto task = std::make_shared<Task>(group_, call, payload_bytes(call, rank()));
    queue_->push(task);
    return std::make_unique<StartedCall>(queue_, task);
  }
  void send_bytes(const void* data, int64_t bytes, int to) override {
    run({.kind = CollectiveKind::send_recv, .send = data, .count = bytes, .dtype = DType::u8, .peer = to});
  }
  void receive_bytes(void* data, int64_t bytes, int from) override {
    run({.kind = CollectiveKind::send_recv, .recv = data, .count = bytes, .dtype = DType::u8, .peer = from});
  }

  std::shared_ptr<Progress::Queue> queue_;
  std::shared_ptr<Group> group_;
};

std::exception_ptr make_call(WorldBackend& backend, const Task& task) {
  try {
    Group& group = *task.group;
    set_checked_mode(task.checked);
    // Another name than the rank's own communicator of these ranks: members tell the two apart by it.
    if (!group.communicator)
      group.communicator = backend.make_communicator(group.ranks, group.name + " (in the background)");
    group.communicator->call(task.call);
    return nullptr;
  } catch (...) { return std::current_exception(); }
}

}  // namespace

Progress::Progress(std::unique_ptr<WorldBackend> backend)
    : queue_(std::make_shared<Queue>()), backend_(std::move(backend)), thread_([this] { run(); }) {}

Progress::~Progress() {
  queue_->wait_for_all();
  {
    std::lock_guard lock(queue_->mutex);
    queue_->closing = true;
    queue_->started.notify_one();
  }
  thread_.join();
}

std::unique_ptr<Communicator> Progress::communicator(const std::vector<int>& ranks, const std::string& name) {
  auto me = std::find(ranks.begin(), ranks.end(), backend_->rank) - ranks.begin();
  auto group = std::make_shared<Group>(Group{ranks, name, nullptr});
  return std::make_unique<ProgressCommunicator>(queue_, std::move(group), static_cast<int>(me));
}

void Progress::finish() {
  queue_->wait_for_all();
  std::lock_guard lock(queue_->mutex);
  if (auto error = std::exchange(queue_->unheard, nullptr)) std::rethrow_exception(error);
}

void Progress::run() {
  set_num_threads(1);
  for (;;) {
    std::shared_ptr<Task> task;
    {
      std::unique_lock lock(queue_->mutex);
      queue_->started.wait(lock, [&] { return queue_->closing || !queue_->tasks.empty(); });
      if (queue_->tasks.empty()) return;
      task = queue_->tasks.front();
    }
    std::exception_ptr error = make_call(*backend_, *task);
    std::lock_guard lock(queue_->mutex);
    task->error = error;
    task->done = true;
    queue_->bytes -= task->bytes;
    queue_->tasks.pop_front();
    queue_->ended.notify_all();
  }
}

}  // namespace cleave::dist
