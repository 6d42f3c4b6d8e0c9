// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Trains softmax regression and a small MLP on Fashion-MNIST, data-parallel. `collx_run -n 4` runs it as four
// processes; alone it is the serial program. At the end it checks that all ranks hold the same bits, and that one
// process that computes the same parts of each batch ends with the same weights, but for the order in which sums are
// added. --check-serial repeats the whole training alone; otherwise only the first steps are compared.
// collx-example: needs=eigen,zlib procs=4 timeout=120 optimised
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized" // g++ 12 reports it in its own AVX-512 header, through Eigen
#endif
#include <collx/algo/two_shot.hpp>
#include <collx/sched/render.hpp>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "../../tools/support/plot.hpp"
#include "../check.hpp"
#include "train.hpp"

namespace {

using namespace fashion;

struct task {
    const char* name;
    std::vector<int> widths;
};

// Prints on rank 0 only.
void say(const collx::communicator& world, const char* format, auto... values) {
    if (world.rank() != 0) return;
    std::printf(format, values...);
    std::fflush(stdout);
}

void run(collx::communicator& world, const task& t, const dataset& data, const dataset& test, bool whole_serial_check,
         collx::tools::line_chart& chart) {
    settings s;
    if (example::is_short()) {
        s.epochs = 1;
        s.images = 6'000;
    }
    std::size_t weights = 0;
    for (std::size_t i = 0; i + 1 < t.widths.size(); ++i)
        weights += static_cast<std::size_t>(t.widths[i] * t.widths[i + 1]);
    say(world, "\n%s: %zu weights, batches of %d among %d ranks\n", t.name, weights, s.batch, world.size());
    say(world, "%6s %9s %9s %10s %15s\n", "epoch", "loss", "test acc", "images/s", "in exchange");

    collx::tools::series losses{t.name, {}, false};
    double reached = 0;
    auto net = train(world, t.widths, data, test, s, world.size(), [&](int epoch, const epoch_report& r) {
        say(world, "%6d %9.4f %8.2f%% %10.0f %14.1f%%\n", epoch, r.loss, 100 * r.test_accuracy, r.images_per_s,
            100 * r.communication_share);
        losses.points.push_back({static_cast<double>(epoch), r.loss});
        reached = r.test_accuracy;
    });
    chart.lines.push_back(losses);
    example::expect(reached >= (example::is_short() ? 0.70 : 0.81), "the test accuracy");
    const int odd = odd_rank(world, net);
    example::expect(odd < 0, "all ranks hold the same bits");
    if (odd >= 0) std::printf("rank %d differs from rank 0\n", odd);

    // Rank 0 repeats the training alone, for the first steps or for all. The others wait in the barrier.
    if (world.size() == 1) return;
    settings again = s;
    if (!whole_serial_check) {
        again.epochs = 1;
        again.images = example::is_short() ? 1'200 : 12'000;
    }
    const auto quietly = [](int, const epoch_report&) {};
    auto together =
        whole_serial_check ? std::move(net) : train(world, t.widths, data, test, again, world.size(), quietly);
    auto alone = world.split(world.rank() == 0 ? 0 : -1);
    if (world.rank() == 0) {
        double alone_reached = 0;
        auto serial = train(alone, t.widths, data, test, again, world.size(),
                            [&](int, const epoch_report& r) { alone_reached = r.test_accuracy; });
        const double difference = largest_difference(together, serial);
        say(world, "all ranks hold the same bits; trained alone for %d steps, weights differ by %.1e at most\n",
            again.images / again.batch * again.epochs, difference);
        if (whole_serial_check)
            say(world, "test accuracy: %.2f%% together, %.2f%% alone\n", 100 * reached, 100 * alone_reached);
        example::expect(difference < 1e-4, "the weights of the serial program");
    }
    collx::barrier(world);
}

void draw(const collx::communicator& world, const collx::tools::line_chart& chart,
          const std::filesystem::path& folder) {
    if (world.rank() != 0) return;
    std::ofstream loss(folder / "fashion_mnist_loss.svg"), exchanges(folder / "fashion_mnist_exchange.svg");
    loss << collx::tools::to_svg(chart);
    const auto exchange = collx::sched::record_all(collx::algo::two_shot_all_reduce{}, world.size());
    exchanges << collx::sched::to_svg(exchange, "the gradient exchange: two-shot all-reduce");
    std::printf(loss.flush() && exchanges.flush()
                    ? "\nDrawn in %s: fashion_mnist_loss.svg and fashion_mnist_exchange.svg.\n"
                    : "\nThe pictures cannot be written in %s.\n",
                folder.c_str());
}

} // namespace

int main(int argc, char** argv) try {
    const bool whole_serial_check = example::has_word(argc, argv, "--check-serial");
    collx::communicator world;
    world.set_timeout(std::chrono::minutes(5)); // the others wait during the serial check
    const auto data = load("train"), test = load("t10k");
    say(world, "Fashion-MNIST: %d images to learn from, %d to test with; %d rank(s)\n", data.size(), test.size(),
        world.size());

    auto chart = collx::tools::curve_chart("Training on Fashion-MNIST", "epoch", "loss");
    chart.subtitle = std::to_string(world.size()) + " ranks, gradients summed by collx";
    run(world, {"softmax regression", {pixels, classes}}, data, test, whole_serial_check, chart);
    run(world, {"MLP 784-128-10", {pixels, 128, classes}}, data, test, whole_serial_check, chart);
    draw(world, chart, std::filesystem::absolute(argv[0]).parent_path());

    int wrong = example::wrong;
    collx::all_reduce(world, collx::value(wrong));
    say(world, "%s\n", wrong == 0 ? "All as expected." : "Something was wrong, see above.");
    return wrong == 0 ? 0 : 1;
} catch (const fashion::missing_data& e) {
    std::printf("SKIPPED: %s\n", e.what());
    return 77;
} catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
