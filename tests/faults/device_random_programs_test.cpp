// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random programs with calls on device memory, over the fake runtime, in which random ranks fail. The ranks are threads
// with a device each, on one host or as several: their calls go by kernels, in two levels, or staged, beside calls on
// host memory and with parts left open. What is expected is as in random_programs_test.cpp; also, the kernels of all
// ranks end. A message of a failure begins with its seed; RANDOM_PROGRAM_SEED=N runs that one alone.
// collx-test: serial timeout=600 needs=any
#include "faults/device_calls.hpp"
#include "faults/rank_program.hpp"

namespace {

using namespace collx_test;

class device_program final : public rank_program {
public:
    device_program(const setting& s, confessions& said, collx::communicator& world, fake_gpus& gpus)
        : rank_program(s, said, world), gpus_(gpus) {
        fake_runtime(gpus).use(me_);
        for (int k = 0; k < 2; ++k) streams_.push_back(std::make_unique<collx::device::fake_stream>(me_));
    }
    // Everything that has work in a stream ends before the streams.
    ~device_program() override { places_.clear(); }

private:
    void set_up() override { is_set_up_.clear(); }
    device_place with_stream(unsigned draw) {
        auto* const s = draw % 3 == 2 ? nullptr : streams_[draw % 3].get();
        return {gpus_, me_, s};
    }
    // Of the first call on a communicator.
    void set_up_devices(const unsigned* draws) {
        if (is_set_up_.size() <= at_) is_set_up_.resize(at_ + 1);
        if (is_set_up_[at_]) return;
        is_set_up_[at_] = true;
        auto s = small(draws[5] % 4 == 0);
        s.two_levels = draws[5] % 8 != 1;
        collx::use_device(with_stream(0).on(here()), s);
    }
    void do_call(place& p, const unsigned* draws) override {
        if (draws[5] / 64 % 4 == 0) return call_on_host(p, draws);
        const std::uint64_t seed = mixed(draws[2], draws[3]);
        const device_place at = with_stream(draws[5] / 16);
        auto& open = p.open;
        using kind = open_device_calls::kind;
        const auto make = [&](kind k) {
            set_up_devices(draws);
            return std::make_unique<open_device_calls>(here(), k, seed, at);
        };
        switch (draws[1] % 8) {
            case 1: return open.push_back(make(kind::single));
            case 2: return open.push_back(make(kind::ready));
            case 3: return open.push_back(make(kind::ready_group));
            case 4:
            case 5:
                if (!open.empty()) return open[draws[4] % open.size()]->use(static_cast<int>(draws[3] % 1000));
                [[fallthrough]];
            case 6: return make(kind::grouped)->finish();
            default:
                if (draws[4] % 4 == 0 && has_one_host(p))
                    return open.push_back(std::make_unique<open_device_window>(here(), 1 + draws[2] % 3000, at));
                return make(kind::single)->finish();
        }
    }
    bool ends_wait_for_peers() const override { return true; }
    bool has_one_host(const place& p) const {
        for (const int id : p.ids)
            if (id / s_.hosts.ranks_per_host != p.ids[0] / s_.hosts.ranks_per_host) return false;
        return true;
    }

    fake_gpus& gpus_;
    std::vector<std::unique_ptr<collx::device::fake_stream>> streams_;
    std::vector<bool> is_set_up_; // by the number of the place
};

void run(setting s) {
    s.destroys_communicators_first = false; // each would wait for its peers' kernels, while others wait in shrink()
    leaving_no_files([&] {                  // memory that kernels of a peer may still use stays as long as the devices
        fake_gpus gpus({.devices = collx_test::most_ranks});
        run_as_threads(s, [&gpus](const setting& of, confessions& said, collx::communicator& world) {
            return std::make_unique<device_program>(of, said, world, gpus);
        });
    });
}

} // namespace

TEST_CASE("ranks that fail in random programs on devices are named, kernels end, and the others go on") {
    each_seed(30, true, run);
}
