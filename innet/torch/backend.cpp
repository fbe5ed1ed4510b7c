// A backend of torch.distributed whose collectives a Python object carries.
//
// PyTorch's dispatcher calls c10d::Backend, which Python cannot derive from. Here each collective
// becomes a call of the carrier's method of the same name, and the answer becomes the Work on which
// the caller waits. The carrier answers with a future of Python's, or with Gloo's works and a
// function to call after them. It never sees a subclass of Tensor, a default root or a caller's list:
// the dispatcher has already dealt with them.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <pybind11/chrono.h>

#include <chrono>
#include <thread>
#include <utility>

namespace
{

using Milliseconds = std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;
using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

// Between two looks for a signal, such as Ctrl-C. Python runs its handlers in the main thread only.
constexpr Milliseconds kBetweenLooks{50};

PyObject *timed_out = nullptr; // the exception for a caller's own timeout

// Gives an object of Python back, in any thread. At the end of the process, Python is gone.
void release(py::object &object)
{
    if (!Py_IsInitialized()) {
        object.release();
        return;
    }
    py::gil_scoped_acquire gil;
    object = py::object();
}

// The handle on a collective.
class Call : public c10d::Work
{
  public:
    Call(int rank, c10d::OpType type, const char *title, const Tensors &inputs, Tensors outputs)
        : Work(rank, type, title, inputs), outputs_(std::move(outputs))
    {
    }

    ~Call() override
    {
        release(error_);
        release(finish_);
    }

    // Takes the carrier's answer. The caller holds the GIL.
    void follow(py::object answer)
    {
        if (!py::isinstance<py::tuple>(answer)) {
            if (answer.attr("done")().cast<bool>())
                settle(answer);
            else
                answer.attr("add_done_callback")(
                    py::cast(c10::intrusive_ptr<Call>::reclaim_copy(this)).attr("_settle"));
            return;
        }
        auto [works, finish] = answer.cast<std::pair<Works, py::object>>();
        works_ = std::move(works);
        if (!finish.is_none())
            finish_ = std::move(finish);
        py::gil_scoped_release no_gil;
        // A send or a receive goes on only while somebody waits for it.
        if (!between_two())
            follow_next(0);
    }

    // Takes the result of a future of Python's that is done. The caller holds the GIL.
    void settle(const py::object &future)
    {
        py::object error = future.attr("exception")();
        if (error.is_none()) {
            py::gil_scoped_release no_gil;
            complete(nullptr);
        } else {
            fail(std::move(error));
        }
    }

    // Ends the call with an error of Python's. The caller holds the GIL.
    void fail(py::object error)
    {
        auto name = py::str(py::type::of(error).attr("__name__")).cast<std::string>();
        auto text = name + ": " + py::str(error).cast<std::string>();
        error_ = std::move(error);
        py::gil_scoped_release no_gil;
        complete(std::make_exception_ptr(std::runtime_error(text)));
    }

    bool wait(Milliseconds timeout = kNoTimeout) override
    {
        const auto over = std::chrono::steady_clock::now() + timeout;
        const bool limited = timeout != kNoTimeout;
        std::optional<py::gil_scoped_release> no_gil;
        if (PyGILState_Check())
            no_gil.emplace();
        if (between_two())
            meet(timeout);
        std::unique_lock<std::mutex> lock(mutex_);
        while (!settled()) {
            auto look = std::chrono::steady_clock::now() + kBetweenLooks;
            const bool last = limited && !between_two() && over <= look;
            cv_.wait_until(lock, last ? over : look, [this] { return settled(); });
            if (settled())
                break;
            lock.unlock();
            if (last)
                give_up(timeout);
            heed_signals();
            lock.lock();
        }
        lock.unlock();
        part();
        raise_error();
        return true;
    }

    void synchronize() override { wait(); }

    bool isSuccess() const override
    {
        std::lock_guard<std::mutex> lock(mutex_);
        return completed_ && !exception_;
    }

    std::exception_ptr exception() const override
    {
        std::lock_guard<std::mutex> lock(mutex_);
        return exception_;
    }

    Tensors result() override
    {
        wait();
        return outputs_;
    }

    // The future's value is several lists of equal length, as of Gloo's calls.
    void in_lists(size_t count) { lists_ = count; }

    int sourceRank() const override
    {
        TORCH_CHECK(works_.size() == 1, "only a receive from any rank has a source");
        return works_[0]->sourceRank();
    }

    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override
    {
        TORCH_CHECK(!between_two(), "a send or a receive has no future: wait for it");
        std::unique_lock<std::mutex> lock(mutex_);
        if (!future_) {
            std::vector<at::Device> devices;
            if (!outputs_.empty() && !outputs_[0].is_cpu())
                devices.push_back(outputs_[0].device());
            c10::TypePtr type = c10::ListType::create(c10::TensorType::get());
            if (lists_ > 1)
                type = c10::ListType::create(type);
            future_ = c10::make_intrusive<c10::ivalue::Future>(type, devices);
        }
        auto future = future_;
        if (completed_)
            mark(lock);
        return future;
    }

    // The error as an object of Python's, or None. The caller holds the GIL.
    py::object error() const
    {
        if (error_)
            return error_;
        auto problem = exception();
        if (!problem)
            return py::none();
        try {
            py::cpp_function([problem] { std::rethrow_exception(problem); })();
        } catch (py::error_already_set &raised) {
            return raised.value();
        }
        return py::none();
    }

  private:
    bool between_two() const
    {
        return opType_ == c10d::OpType::SEND || opType_ == c10d::OpType::RECV
               || opType_ == c10d::OpType::RECVANYSOURCE;
    }

    // Completes the call once Gloo's works are done, from the given one on.
    void follow_next(size_t index)
    {
        if (index == works_.size()) {
            finish_and_complete();
            return;
        }
        auto self = c10::intrusive_ptr<Call>::reclaim_copy(this);
        auto go_on = [self, index](const std::exception_ptr &problem) {
            if (problem)
                self->complete(problem);
            else
                self->follow_next(index + 1);
        };
        c10::intrusive_ptr<c10::ivalue::Future> future;
        try {
            future = works_[index]->getFuture();
        } catch (const c10::Error &) { // Gloo's reduce-scatters end only if somebody waits for them
            std::thread([self, index, go_on] { go_on(self->outcome(index, kNoTimeout)); }).detach();
            return;
        }
        future->addCallback([go_on](c10::ivalue::Future &done) {
            go_on(done.hasError() ? done.exception_ptr() : nullptr);
        });
    }

    // Waits for one of Gloo's works. Returns its error.
    std::exception_ptr outcome(size_t index, Milliseconds timeout) const
    {
        try {
            works_[index]->wait(timeout);
        } catch (...) {
            return std::current_exception();
        }
        return nullptr;
    }

    // Lets a thread wait for a send or a receive, as Gloo's wait does not end when a signal arrives.
    void meet(Milliseconds timeout)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (completed_ || meeting_.joinable())
            return;
        meeting_ = std::thread([this, timeout] {
            if (auto problem = outcome(0, timeout))
                complete(problem);
            else
                finish_and_complete();
        });
    }

    // Waits for the end of that thread.
    void part()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        auto thread = std::move(meeting_);
        lock.unlock();
        if (thread.joinable())
            thread.join();
    }

    void finish_and_complete()
    {
        if (finish_) {
            py::gil_scoped_acquire gil;
            try {
                finish_();
            } catch (py::error_already_set &raised) {
                fail(raised.value());
                return;
            }
        }
        complete(nullptr);
    }

    void complete(std::exception_ptr problem)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        completed_ = true;
        exception_ = std::move(problem);
        if (auto profiled = std::exchange(recordFunctionEndCallback_, nullptr))
            profiled();
        mark(lock);
        lock.unlock();
        cv_.notify_all();
    }

    // Completes the future of a completed call, if there is one, and once only.
    void mark(std::unique_lock<std::mutex> &lock)
    {
        if (!future_ || marked_)
            return;
        marked_ = true;
        marking_ = std::this_thread::get_id();
        lock.unlock();
        if (exception_)
            future_->setError(exception_);
        else
            future_->markCompleted(value());
        lock.lock();
        marking_ = {};
    }

    // Returns whether the future is complete, too. Its callbacks may wait, and need not wait for themselves.
    bool settled() const
    {
        return completed_
               && (marking_ == std::thread::id() || marking_ == std::this_thread::get_id());
    }

    c10::IValue value() const
    {
        if (lists_ < 2)
            return c10::IValue(outputs_);
        const auto length = static_cast<ptrdiff_t>(outputs_.size() / lists_);
        std::vector<Tensors> lists;
        for (auto first = outputs_.begin(); first != outputs_.end(); first += length)
            lists.emplace_back(first, first + length);
        return c10::IValue(lists);
    }

    // Raises the error of the call, if it has one: Python's own object, as often as asked.
    void raise_error() const
    {
        if (error_) {
            py::gil_scoped_acquire gil;
            py::object error = error_;
            PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(error.ptr())), error.ptr());
            throw py::error_already_set();
        }
        if (auto problem = exception())
            std::rethrow_exception(problem);
    }

    void give_up(Milliseconds timeout) const
    {
        py::gil_scoped_acquire gil;
        py::handle raise{timed_out};
        raise(std::chrono::duration<double>(timeout).count());
        throw py::error_already_set();
    }

    void heed_signals()
    {
        if (!Py_IsInitialized())
            return;
        py::gil_scoped_acquire gil;
        if (!PyErr_CheckSignals())
            return;
        if (between_two()) {
            py::gil_scoped_release no_gil;
            for (auto &work : works_)
                work->abort();
            part();
        }
        throw py::error_already_set();
    }

    Tensors outputs_;
    size_t lists_ = 1;
    Works works_; // Gloo's
    py::object finish_;
    py::object error_;
    std::thread meeting_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
    bool marked_ = false;
    std::thread::id marking_; // the thread that completes the future
};

// What a profiler is told of a collective.
struct Shown {
    const char *name;  // the carrier's method
    const char *title; // as in a trace
    c10d::OpType type;
    std::vector<int64_t> input_sizes = {};
    std::vector<int64_t> output_sizes = {};
};

int64_t elements(const Tensors &tensors)
{
    int64_t sum = 0;
    for (auto &tensor : tensors)
        sum += tensor.numel();
    return sum;
}

Tensors joined(const std::vector<Tensors> &lists)
{
    Tensors all;
    for (auto &list : lists)
        all.insert(all.end(), list.begin(), list.end());
    return all;
}

// The backend itself. What is not a collective is Gloo's.
class Backend : public c10d::Backend
{
  public:
    using Ptr = c10::intrusive_ptr<c10d::Work>;

    // The ranks of the group in the default group are `first`, `first + stride`, ..., or `stride` is -1.
    Backend(py::object carrier, int rank, int size, int first, int stride)
        : c10d::Backend(rank, size), carrier_(std::move(carrier)), first_(first), stride_(stride)
    {
    }

    ~Backend() override { release(carrier_); }

    py::object carrier() const { return carrier_; }

    const std::string getBackendName() const override { return "innet"; }

    // Not all versions of PyTorch that have these two in the class above have them as virtual ones.
    c10::intrusive_ptr<Options> getBackendOptions()
    {
        py::gil_scoped_acquire gil;
        return carrier_.attr("options").cast<c10::intrusive_ptr<Options>>();
    }

    void setTimeout(Milliseconds timeout) { ask("set_timeout", timeout); }

    // Every rank begins at 0 and counts its collectives.
    void setSequenceNumberForGroup() override {}

    uint64_t getSequenceNumberForGroup() override { return sequence_; }

    void shutdown() override { ask("shutdown"); }

    void abort() override { ask("abort"); }

    void monitoredBarrier(const c10d::BarrierOptions &opts, bool all) override
    {
        ask("monitored_barrier", opts, all);
    }

    // As in newer versions of PyTorch.
    c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store> &,
                                            const std::vector<int> &,
                                            const c10::intrusive_ptr<Options> &)
    {
        ask("split");
        return nullptr;
    }

    Ptr allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override
    {
        return carry({"allreduce", "innet:all_reduce", c10d::OpType::ALLREDUCE}, tensors, tensors,
                     tensors, opts);
    }

    Ptr allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts) override
    {
        return allreduce(tensors, opts);
    }

    Ptr allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts) override
    {
        return carry({"allreduce_coalesced", "innet:all_reduce", c10d::OpType::ALLREDUCE_COALESCED},
                     tensors, tensors, tensors, opts);
    }

    Ptr broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override
    {
        return carry({"broadcast", "innet:broadcast", c10d::OpType::BROADCAST}, tensors, tensors,
                     tensors, opts);
    }

    Ptr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override
    {
        return carry({"reduce", "innet:reduce", c10d::OpType::REDUCE}, tensors, tensors, tensors,
                     opts);
    }

    Ptr allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                  const c10d::AllgatherOptions &opts) override
    {
        auto call = carry({"allgather", "innet:all_gather", c10d::OpType::ALLGATHER}, inputs,
                          joined(outputs), outputs, inputs, opts);
        call->in_lists(outputs.size());
        return call;
    }

    Ptr _allgather_base(at::Tensor &output, at::Tensor &input,
                        const c10d::AllgatherOptions &opts) override
    {
        return carry({"allgather_into", "innet:all_gather", c10d::OpType::_ALLGATHER_BASE}, {input},
                     {output}, Tensors{output}, Tensors{input}, opts);
    }

    Ptr allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                            const c10d::AllgatherOptions &opts) override
    {
        auto call =
            carry({"allgather_coalesced", "innet:all_gather", c10d::OpType::ALLGATHER_COALESCED},
                  inputs, joined(outputs), outputs, inputs, opts);
        call->in_lists(outputs.size());
        return call;
    }

    Ptr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                        const c10d::AllgatherOptions &opts) override
    {
        return carry({"allgather_into", "innet:all_gather", c10d::OpType::COALESCED}, inputs,
                     outputs, outputs, inputs, opts);
    }

    Ptr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                       const c10d::ReduceScatterOptions &opts) override
    {
        return carry({"reduce_scatter", "innet:reduce_scatter", c10d::OpType::REDUCE_SCATTER},
                     joined(inputs), outputs, outputs, inputs, opts);
    }

    Ptr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                             const c10d::ReduceScatterOptions &opts) override
    {
        return carry(
            {"reduce_scatter_of", "innet:reduce_scatter", c10d::OpType::_REDUCE_SCATTER_BASE},
            {input}, {output}, Tensors{output}, Tensors{input}, opts);
    }

    Ptr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                        const c10d::ReduceScatterOptions &opts) override
    {
        return carry({"reduce_scatter_of", "innet:reduce_scatter",
                      c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED},
                     inputs, outputs, outputs, inputs, opts);
    }

    Ptr gather(std::vector<Tensors> &outputs, Tensors &inputs,
               const c10d::GatherOptions &opts) override
    {
        return carry({"gather", "innet:gather", c10d::OpType::GATHER}, inputs, joined(outputs),
                     outputs, inputs, opts);
    }

    Ptr scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                const c10d::ScatterOptions &opts) override
    {
        return carry({"scatter", "innet:scatter", c10d::OpType::SCATTER}, joined(inputs), outputs,
                     outputs, inputs, opts);
    }

    Ptr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_sizes,
                      std::vector<int64_t> &input_sizes, const c10d::AllToAllOptions &opts) override
    {
        return carry({"alltoall_base", "innet:all_to_all", c10d::OpType::ALLTOALL_BASE, input_sizes,
                      output_sizes},
                     {input}, {output}, output, input, output_sizes, input_sizes, opts);
    }

    Ptr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) override
    {
        return carry({"alltoall", "innet:all_to_all", c10d::OpType::ALLTOALL}, inputs, outputs,
                     outputs, inputs, opts);
    }

    Ptr send(Tensors &tensors, int to, int tag) override
    {
        return carry({"send", "innet:send", c10d::OpType::SEND}, tensors, {}, tensors, to, tag);
    }

    Ptr recv(Tensors &tensors, int from, int tag) override
    {
        return carry({"recv", "innet:recv", c10d::OpType::RECV}, {}, tensors, tensors, from, tag);
    }

    Ptr recvAnysource(Tensors &tensors, int tag) override
    {
        return carry({"recv_anysource", "innet:recvAnySource", c10d::OpType::RECVANYSOURCE}, {},
                     tensors, tensors, tag);
    }

    Ptr barrier(const c10d::BarrierOptions &opts) override
    {
        return carry({"barrier", "innet:barrier", c10d::OpType::BARRIER}, {}, {}, opts);
    }

  private:
    template <typename... Arguments> void ask(const char *name, const Arguments &...arguments)
    {
        py::gil_scoped_acquire gil;
        carrier_.attr(name)(arguments...);
    }

    template <typename... Arguments>
    c10::intrusive_ptr<Call> carry(const Shown &shown, const Tensors &inputs,
                                   const Tensors &outputs, const Arguments &...arguments)
    {
        auto &any = inputs.empty() ? outputs : inputs;
        auto group = std::make_tuple(getGroupUid(), getGroupDesc());
        auto sequence = std::make_tuple(static_cast<int64_t>(++sequence_), false);
        RECORD_PARAM_COMMS_DATA(sequence, group, inputs, outputs, rank_,
                                std::string(shown.title + sizeof("innet")), elements(inputs),
                                elements(outputs), any.empty() ? at::kByte : any[0].scalar_type(),
                                shown.input_sizes, shown.output_sizes, first_, stride_, size_);
        py::gil_scoped_acquire gil;
        auto call = c10::make_intrusive<Call>(rank_, shown.type, shown.title, inputs, outputs);
        try {
            call->follow(carrier_.attr(shown.name)(arguments...));
        } catch (py::error_already_set &problem) {
            call->fail(problem.value());
            throw;
        }
        return call;
    }

    py::object carrier_;
    const int first_;
    const int stride_;
    std::atomic<uint64_t> sequence_{0};
};

// Returns the first tensor of an argument, which may be a list of lists.
std::optional<at::Tensor> first_tensor(const c10::IValue &argument)
{
    if (argument.isTensor())
        return argument.toTensor();
    if (argument.isList())
        for (const auto &each : argument.toListRef())
            if (auto found = first_tensor(each))
                return found;
    return std::nullopt;
}

// Returns an argument with values in memory as they are, without a sign or a conjugation left out.
c10::IValue resolved(const c10::IValue &argument)
{
    if (argument.isTensor())
        return argument.toTensor().resolve_conj().resolve_neg();
    if (!argument.isList() || !first_tensor(argument))
        return argument;
    c10::impl::GenericList made(argument.toList().elementType());
    for (const auto &each : argument.toListRef())
        made.push_back(resolved(each));
    return made;
}

// Calls a collective whose tensors leave out a sign or a conjugation, as `x.conj().imag` does. PyTorch
// gives a backend copies of such tensors, so that the results are lost. innet gets the tensors.
void with_views(const c10::OperatorHandle &op, c10::DispatchKeySet keys, torch::jit::Stack *stack)
{
    const auto &arguments = op.schema().arguments();
    const size_t first = stack->size() - arguments.size();
    std::optional<at::Tensor> tensor;
    bool innets = false;
    for (size_t index = 0; index < arguments.size(); index++) {
        const auto &value = (*stack)[first + index];
        if (!tensor)
            tensor = first_tensor(value);
        if (arguments[index].name() != "process_group" || !tensor)
            continue;
        auto group = value.toCustomClass<c10d::ProcessGroup>();
        innets = dynamic_cast<Backend *>(group->getBackend(tensor->device().type()).get());
    }
    if (!innets)
        for (size_t index = first; index < stack->size(); index++)
            (*stack)[index] = resolved((*stack)[index]);
    op.redispatchBoxed(
        keys - c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative}),
        stack);
}

void admit_views(torch::Library &library)
{
    for (auto name :
         {"allreduce_", "allreduce_coalesced_", "broadcast_", "reduce_", "allgather_",
          "_allgather_base_", "allgather_coalesced_", "allgather_into_tensor_coalesced_",
          "reduce_scatter_", "_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_", "gather_",
          "scatter_", "alltoall_", "alltoall_base_", "send", "recv_", "recv_any_source_"})
        library.impl(name, torch::CppFunction::makeFromBoxedFunction<&with_views>());
}

} // namespace

TORCH_LIBRARY_IMPL(c10d, Conjugate, library) { admit_views(library); }
TORCH_LIBRARY_IMPL(c10d, Negative, library) { admit_views(library); }

PYBIND11_MODULE(innet_backend, module)
{
    module.doc() = "The backend of torch.distributed in C++.";
    module.def("raise_after_timeout",
               [](py::object function) { timed_out = function.release().ptr(); });
    py::class_<Call, c10d::Work, c10::intrusive_ptr<Call>>(module, "Call")
        .def("exception", &Call::error)
        .def("_settle", &Call::settle);
    py::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>>(module, "Backend")
        .def(py::init<py::object, int, int, int, int>())
        .def_property_readonly("carrier", &Backend::carrier)
        .def_property_readonly("options", &Backend::getBackendOptions)
        .def("_set_default_timeout", &Backend::setTimeout);
}
