// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=nightly
//
// The file of a rank's machine and the rank's site in it: the bounds of both, and what is refused.
#include <collx/job/machine.hpp>
#include <collx/topo/machines.hpp>
#include <collx/topo/nccl_topology_writer.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <initializer_list>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "support/written_file.hpp"

namespace {

using namespace collx;

constexpr int me = 3;

// A file of a machine, and the environment of a rank that names it.
class described {
public:
    explicit described(const std::string& text, std::initializer_list<const char*> others = {}) : file_(text) {
        all_.push_back(entry_.c_str());
        all_.insert(all_.end(), others);
        all_.push_back(nullptr);
    }
    described(const described&) = delete;
    // The number of the GPU, or of the processor, at which the rank is.
    int place(int place, int here) const {
        const detail::own_machine m = detail::read_own_machine(environment(all_.data()), me, place, here);
        const std::vector<int> sites = topo::places_of_ranks(m.machine);
        for (std::size_t i = 0; i < sites.size(); ++i)
            if (sites[i] == m.site) return static_cast<int>(i);
        return -1;
    }
    std::string refusal(errc code, int place = 0, int here = 8) const {
        try {
            (void)this->place(place, here);
        } catch (const error& e) {
            CHECK(e.code() == code);
            return e.what();
        }
        return "taken";
    }

private:
    collx_test::written_file file_;
    std::string entry_ = "COLLX_TOPOLOGY=" + file_.name();
    std::vector<const char*> all_;
};

const auto has = [](const std::string& text) { return Catch::Matchers::Contains(text); };
const std::string eight_gpus = topo::write_nccl_topology(topo::dgx_1v(), 70); // 8
const std::string two_processors =
    R"(<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85"/>)"
    R"(<cpu numaid="1" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85"/></system>)";

} // namespace

TEST_CASE("a file of a machine has 1 MiB at most") {
    const std::string least(detail::most_topology_bytes - eight_gpus.size(), ' ');
    CHECK(described(eight_gpus + least).place(2, 8) == 2);
    CHECK_THAT(described(eight_gpus + least + ' ').refusal(errc::environment), has("has more than 1048576 bytes"));
}

TEST_CASE("a file that is none is refused") {
    CHECK_THAT(described("").refusal(errc::invalid_argument), !has("taken"));
    CHECK_THAT(described(R"(<system version="1"></system>)").refusal(errc::invalid_argument), !has("taken"));
    const char* const nowhere[] = {"COLLX_TOPOLOGY=/nowhere/there", nullptr};
    CHECK_THROWS_WITH(detail::read_own_machine(environment(nowhere), me, 0, 1),
                      has("rank 3") && has("/nowhere/there: No such file"));
    const char* const folder[] = {"COLLX_TOPOLOGY=/tmp", nullptr};
    CHECK_THROWS_WITH(detail::read_own_machine(environment(folder), me, 0, 1), has("/tmp: Is a directory"));
}

TEST_CASE("a FIFO that has no writer is refused at once") {
    const collx_test::written_file name("");
    const std::string fifo = name.name() + ".fifo", entry = "COLLX_TOPOLOGY=" + fifo;
    REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
    const char* const all[] = {entry.c_str(), nullptr};
    CHECK_THROWS_WITH(detail::read_own_machine(environment(all), me, 0, 1), has(": Not a regular file"));
    ::unlink(fifo.c_str());
}

TEST_CASE("a rank is at the GPU of its place, or at the one that the environment names") {
    CHECK(described(eight_gpus).place(0, 8) == 0);
    CHECK(described(eight_gpus).place(7, 8) == 7);
    CHECK_THAT(described(eight_gpus).refusal(errc::invalid_argument, 8, 9), has("has 8 GPUs") && has("the 9. of 9"));
    CHECK(described(eight_gpus, {"COLLX_GPU=7"}).place(0, 8) == 7);
    CHECK_THAT(described(eight_gpus, {"COLLX_GPU=8"}).refusal(errc::invalid_argument), has("would have GPU 8"));
    CHECK(described(eight_gpus, {"CUDA_VISIBLE_DEVICES=5"}).place(3, 8) == 5);
    CHECK(described(eight_gpus, {"CUDA_VISIBLE_DEVICES=6,4"}).place(1, 2) == 4);
    CHECK_THAT(described(eight_gpus, {"CUDA_VISIBLE_DEVICES=6,4"}).refusal(errc::invalid_argument, 2, 3),
               has("has no GPU for the 3. rank of its host"));
    for (const char* bad : {"CUDA_VISIBLE_DEVICES=", "CUDA_VISIBLE_DEVICES=GPU-1234", "CUDA_VISIBLE_DEVICES=1,",
                            "CUDA_VISIBLE_DEVICES=-1", "CUDA_VISIBLE_DEVICES=4096"})
        CHECK_THAT(described(eight_gpus, {bad}).refusal(errc::invalid_argument), has("names no numbers"));
    CHECK(described(eight_gpus, {"COLLX_GPU=1", "CUDA_VISIBLE_DEVICES=GPU-1234"}).place(0, 8) == 1);
}

TEST_CASE("where there are no GPUs, ranks are spread evenly over the processors") {
    for (const int here : {1, 2, 3, 4, 7})
        for (int place = 0; place < here; ++place)
            CHECK(described(two_processors).place(place, here) == (place * 2 < here ? 0 : 1));
}
