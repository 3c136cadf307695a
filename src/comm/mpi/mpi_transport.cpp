// Messages through MPI. Everything here but wake() runs in the engine's thread, which is also the one that initialises
// MPI, so that MPI needs no locks of its own (MPI_THREAD_FUNNELED). Control messages have a communicator of their own.
#include "base/error.h"
#include "comm/mpi/backoff.h"

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <list>
#include <thread>

namespace tutti::comm::mpi {
namespace {

constexpr std::size_t largest_message = std::size_t{1} << 30; // counts are ints
constexpr int largest_control = 256 << 10;
constexpr auto time_to_cancel = std::chrono::milliseconds(100);

// Of every rank, for what it sends to others of its machine: headers, and all that is small; and everything where a
// process may not read another's memory. Open MPI's own choice is four times that, and all of it is soon in use.
constexpr const char* shared_parts = "OMPI_MCA_btl_vader_segment_size";
constexpr Bytes shared_part{std::int64_t{1} << 20};

std::string describe(int code) {
    std::array<char, MPI_MAX_ERROR_STRING> text;
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    return {text.data(), static_cast<std::size_t>(length)};
}

void check(int code, const char* what) {
    TUTTI_CHECK(code != MPI_ERR_TRUNCATE, "{}: more came than was to be received", what);
    if (code != MPI_SUCCESS) fail_world("{} failed: {}", what, describe(code));
}

struct Connection {
    int rank = 0, size = 1;
    MPI_Comm data = MPI_COMM_NULL, control = MPI_COMM_NULL;
    bool shares_cores = false;
};

// In the order of the ranks that processes take.
MPI_Comm own_communicator(int rank) {
    MPI_Comm result = MPI_COMM_NULL;
    check(MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &result), "MPI_Comm_split");
    check(MPI_Comm_set_errhandler(result, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    return result;
}

// The rank that this process takes.
int own_rank(std::span<const int> places) {
    int process = 0, size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &process);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (places.size() != static_cast<std::size_t>(size)) return process;
    return static_cast<int>(std::ranges::find(places, process) - places.begin());
}

Connection connect(std::span<const int> places) {
    Connection connection;
    // The engine sleeps by itself when nothing is to be done; yielding at every question would cost it its turn on a
    // busy machine. Whoever started the ranks may want it otherwise.
    ::setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
    ::setenv(shared_parts, std::to_string(shared_part.count).c_str(), 0);
    int provided = MPI_THREAD_SINGLE;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    if (provided < MPI_THREAD_FUNNELED) fail("this MPI was built without support for threads");
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    connection.data = own_communicator(own_rank(places));
    connection.control = own_communicator(own_rank(places));
    MPI_Comm_rank(connection.data, &connection.rank);
    MPI_Comm_size(connection.data, &connection.size);

    int *most = nullptr, is_known = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &is_known);
    if (!is_known || *most < (1 << 28) - 1) fail("this MPI has too few tags: {}", is_known ? *most : 0);

    MPI_Comm neighbours = MPI_COMM_NULL; // ranks of this machine; each has a thread that computes and this one
    check(MPI_Comm_split_type(connection.data, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &neighbours), "MPI_Comm_split");
    int local_ranks = 1;
    MPI_Comm_size(neighbours, &local_ranks);
    cpu_set_t mine, all; // cores that they may use: of each, where ranks are bound to some
    CPU_ZERO(&mine);
    ::sched_getaffinity(0, sizeof mine, &mine);
    check(MPI_Allreduce(&mine, &all, sizeof mine, MPI_BYTE, MPI_BOR, neighbours), "MPI_Allreduce");
    MPI_Comm_free(&neighbours);
    connection.shares_cores = 2 * local_ranks > CPU_COUNT(&all);
    return connection;
}

class MpiTransport final : public Transport {
  public:
    explicit MpiTransport(std::span<const int> places)
        : connection_(connect(places)), backoff_(connection_.shares_cores), control_buffer_(largest_control) {
        post_control();
    }

    int rank() const override { return connection_.rank; }
    int size() const override { return connection_.size; }
    bool shares_process() const override { return false; }
    Bytes room_of_group(int ranks) const override { return {ranks * shared_part.count}; }

    void send(int to, Tag tag, std::span<const std::byte> data, const Receipt& receipt) override {
        post(data, receipt, [&](std::span<const std::byte> part, MPI_Request* request) {
            return MPI_Isend(part.data(), static_cast<int>(part.size()), MPI_BYTE, to, tag, connection_.data, request);
        });
    }
    void receive(int from, Tag tag, std::span<std::byte> data, const Receipt& receipt) override {
        post(data, receipt, [&](std::span<std::byte> part, MPI_Request* request) {
            return MPI_Irecv(part.data(), static_cast<int>(part.size()), MPI_BYTE, from, tag, connection_.data,
                             request);
        });
    }
    void poll(std::vector<Receipt>& done) override;

    void send_control(int to, std::vector<std::byte> content) override;
    std::optional<ControlMessage> receive_control() override;

    void wait(Clock::time_point until) override { backoff_.wait(until, !requests_.empty()); }
    void wake() override { backoff_.wake(); }
    void abandon() override;
    void close(bool together) override;
    bool closes_together() const override { return true; }

  private:
    struct PartUnderWay { // beside its request
        Receipt receipt;
        int bytes;
        std::shared_ptr<int> parts_left; // of a message above a gibibyte, which goes in several
    };
    struct ControlUnderWay {
        std::vector<std::byte> content;
        MPI_Request request = MPI_REQUEST_NULL;
    };

    template <class Byte, class Post>
    void post(std::span<Byte> data, const Receipt& receipt, const Post& post_part) {
        const std::size_t parts = std::max<std::size_t>(1, (data.size() + largest_message - 1) / largest_message);
        const auto parts_left = parts > 1 ? std::make_shared<int>(static_cast<int>(parts)) : nullptr;
        for (std::size_t i = 0; i < parts; ++i) {
            const auto part =
                data.subspan(i * largest_message).first(std::min(largest_message, data.size() - i * largest_message));
            MPI_Request request = MPI_REQUEST_NULL;
            check(post_part(part, &request), "a message");
            requests_.push_back(request);
            parts_.push_back({receipt, static_cast<int>(part.size()), parts_left});
        }
        backoff_.restart();
    }
    void post_control();
    bool control_has_left(); // all that was sent

    Connection connection_;
    Backoff backoff_;
    std::vector<MPI_Request> requests_;
    std::vector<PartUnderWay> parts_;
    std::vector<int> finished_; // as MPI gives it back: indices of requests
    std::vector<MPI_Status> statuses_;
    std::list<ControlUnderWay> control_out_;
    std::vector<std::byte> control_buffer_;
    MPI_Request control_in_ = MPI_REQUEST_NULL;
};

void MpiTransport::poll(std::vector<Receipt>& done) {
    if (requests_.empty()) return;
    finished_.resize(requests_.size());
    statuses_.resize(requests_.size());
    int count = 0, error = MPI_SUCCESS;
    const int code =
        MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, finished_.data(), statuses_.data());
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) check(code, "MPI_Testsome");
    if (count == MPI_UNDEFINED || count == 0) return;
    for (int i = 0; i < count; ++i) {
        const PartUnderWay& part = parts_[finished_[i]];
        if (code == MPI_ERR_IN_STATUS && statuses_[i].MPI_ERROR != MPI_SUCCESS) {
            error = statuses_[i].MPI_ERROR;
            continue;
        }
        if (part.receipt.part.way == Part::Way::received) {
            int bytes = 0;
            MPI_Get_count(&statuses_[i], MPI_BYTE, &bytes);
            TUTTI_CHECK(bytes == part.bytes, "{} bytes came from rank {} instead of {}", bytes, statuses_[i].MPI_SOURCE,
                        part.bytes);
        }
        if (!part.parts_left || --*part.parts_left == 0) done.push_back(part.receipt);
    }
    for (std::size_t i = 0; i < requests_.size();) // MPI has cleared those that are done
        if (requests_[i] != MPI_REQUEST_NULL) {
            ++i;
        } else {
            requests_[i] = requests_.back();
            parts_[i] = std::move(parts_.back());
            requests_.pop_back();
            parts_.pop_back();
        }
    backoff_.restart();
    check(error, "a message");
}

void MpiTransport::send_control(int to, std::vector<std::byte> content) {
    TUTTI_CHECK(content.size() <= largest_control, "a control message of {} bytes", content.size());
    control_out_.push_back({std::move(content), MPI_REQUEST_NULL});
    ControlUnderWay& message = control_out_.back();
    check(MPI_Isend(message.content.data(), static_cast<int>(message.content.size()), MPI_BYTE, to, 0,
                    connection_.control, &message.request),
          "a control message");
}

void MpiTransport::post_control() {
    check(MPI_Irecv(control_buffer_.data(), largest_control, MPI_BYTE, MPI_ANY_SOURCE, 0, connection_.control,
                    &control_in_),
          "a control message");
}

std::optional<ControlMessage> MpiTransport::receive_control() {
    control_has_left();
    int is_there = 0;
    MPI_Status status;
    check(MPI_Test(&control_in_, &is_there, &status), "a control message");
    if (!is_there) return std::nullopt;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    ControlMessage message{status.MPI_SOURCE, {control_buffer_.begin(), control_buffer_.begin() + bytes}};
    post_control();
    backoff_.restart();
    return message;
}

bool MpiTransport::control_has_left() {
    std::erase_if(control_out_, [](ControlUnderWay& message) {
        int has_left = 0;
        MPI_Test(&message.request, &has_left, MPI_STATUS_IGNORE);
        return has_left != 0;
    });
    return control_out_.empty();
}

// What has not begun to arrive is taken back. The rest gets a moment; nothing arrives any more when the engine has
// ended the run and stops asking.
void MpiTransport::abandon() {
    for (std::size_t i = 0; i < requests_.size(); ++i)
        if (parts_[i].receipt.part.way == Part::Way::received) MPI_Cancel(&requests_[i]);
    const auto is_under_way = [&] {
        for (std::size_t i = 0; i < requests_.size(); ++i) {
            int is_done = 1;
            if (parts_[i].receipt.part.way == Part::Way::received && requests_[i] != MPI_REQUEST_NULL)
                MPI_Test(&requests_[i], &is_done, MPI_STATUS_IGNORE);
            if (!is_done) return true;
        }
        return false;
    };
    for (const auto end = Clock::now() + time_to_cancel; Clock::now() < end && is_under_way();)
        std::this_thread::yield();
    requests_.clear();
    parts_.clear();
}

// Without the others MPI is not finalised: that would wait for them.
void MpiTransport::close(bool together) {
    if (!together) return;
    MPI_Cancel(&control_in_);
    MPI_Wait(&control_in_, MPI_STATUS_IGNORE);
    while (!control_has_left()) std::this_thread::yield();
    MPI_Comm_free(&connection_.control);
    MPI_Comm_free(&connection_.data);
    MPI_Finalize();
}

} // namespace

extern "C" Transport* tutti_open_transport(std::span<const int> places) { return new MpiTransport(places); }

} // namespace tutti::comm::mpi
