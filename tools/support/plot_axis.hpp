// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One axis of a chart: which values it spans, where its ticks are, how they are labelled. Sizes tick at powers of two
// and times at powers of ten, because they are swept and compared that way. Pure arithmetic, no drawing.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "format.hpp"

namespace collx::tools {

enum class scale { linear, log2, log10 };
enum class axis_unit { plain, bytes, microseconds, seconds, gigabytes_per_second };

struct axis {
    std::string label;
    tools::scale scale = tools::scale::linear;
    axis_unit unit = axis_unit::plain;
    std::optional<double> min; // otherwise from the data
    std::optional<double> max;
};

/// A value with its unit: 64 KiB, 10 us, 12.5 GB/s.
inline std::string unit_text(double value, axis_unit unit) {
    switch (unit) {
        case axis_unit::bytes: return size_text(value);
        case axis_unit::microseconds: return duration_text(value * 1e3);
        case axis_unit::seconds: return duration_text(value * 1e9);
        case axis_unit::gigabytes_per_second: return number_text(value) + " GB/s";
        case axis_unit::plain: break;
    }
    return number_text(value, 5);
}

struct tick {
    double value;
    std::string label; // empty: a grid line only
};

/// An axis bound to its range of values. Ensures: position() is finite and ascending, for any finite drawable value.
class bound_axis {
public:
    /// `nice` widens the range to ticks, which is wanted upwards but not for the swept variable.
    bound_axis(const axis& a, const std::vector<double>& values, bool nice) : axis_(a) {
        find_range(values);
        if (nice) widen();
    }

    [[nodiscard]] bool drawable(double v) const { return std::isfinite(v) && (axis_.scale == scale::linear || v > 0); }
    /// 0 at the low end, 1 at the high end.
    [[nodiscard]] double position(double v) const { return (transform(v) - low_) / (high_ - low_); }
    [[nodiscard]] double low() const { return inverse(low_); }
    [[nodiscard]] double high() const { return inverse(high_); }

    /// Ascending and inside the range; about `wanted` labels at most.
    [[nodiscard]] std::vector<tick> ticks(int wanted) const {
        if (axis_.scale == scale::linear) return linear_ticks(wanted);
        const double span = high_ - low_;
        auto out = axis_.scale == scale::log10 && span < 2.5 ? mantissa_ticks(span) : power_ticks(wanted);
        if (out.size() >= 2) return out;
        // The values are closer together than round ones, so the two ends are labelled.
        return {labelled(low()), labelled(high())};
    }

private:
    [[nodiscard]] double transform(double v) const {
        return axis_.scale == scale::linear ? v : axis_.scale == scale::log2 ? std::log2(v) : std::log10(v);
    }
    [[nodiscard]] double inverse(double t) const {
        return axis_.scale == scale::linear ? t : axis_.scale == scale::log2 ? std::exp2(t) : std::pow(10.0, t);
    }

    void find_range(const std::vector<double>& values) {
        bool any = false;
        for (const double v : values) {
            if (!drawable(v)) continue;
            const double t = transform(v);
            low_ = any ? std::min(low_, t) : t;
            high_ = any ? std::max(high_, t) : t;
            any = true;
        }
        if (!any) {
            low_ = axis_.scale == scale::linear ? 0 : transform(1);
            high_ = low_ + 1;
        }
        if (axis_.min && drawable(*axis_.min)) low_ = transform(*axis_.min);
        if (axis_.max && drawable(*axis_.max)) high_ = transform(*axis_.max);
        if (high_ < low_) std::swap(low_, high_);
        // One value, or equal ones: give them room on both sides.
        const double least = 1e-9 * std::max(1.0, std::fabs(low_));
        if (high_ - low_ < least) {
            const double room = axis_.scale == scale::linear ? std::max(std::fabs(low_) * 0.1, 0.5) : 1.0;
            low_ -= room;
            high_ += room;
        }
    }

    void widen() {
        if (axis_.scale == scale::linear) {
            const double step = nice_step((high_ - low_) / 5);
            if (!axis_.min) low_ = std::floor(low_ / step + 1e-9) * step;
            if (!axis_.max) high_ = std::ceil(high_ / step - 1e-9) * step;
            return;
        }
        // A twentieth of the height above and below keeps marks off the frame.
        const double room = 0.05 * (high_ - low_);
        if (!axis_.min) low_ -= room;
        if (!axis_.max) high_ += room;
    }

    // The smallest of 1, 2, 5 times a power of ten that is not below `rough`.
    static double nice_step(double rough) {
        const double power = std::pow(10.0, std::floor(std::log10(rough)));
        for (const double m : {1.0, 2.0, 5.0})
            if (m * power >= rough * (1 - 1e-9)) return m * power;
        return 10 * power;
    }

    [[nodiscard]] tick labelled(double v) const { return {v, unit_text(v, axis_.unit)}; }

    [[nodiscard]] std::vector<tick> linear_ticks(int wanted) const {
        const int steps = std::max(1, wanted - 1);
        auto out = multiples_of(nice_step((high_ - low_) / steps), wanted);
        // A wide step may have one multiple inside or none; a quarter of it has at least two.
        return out.size() >= 2 ? out : multiples_of(nice_step((high_ - low_) / (4 * steps)), 4 * wanted);
    }

    [[nodiscard]] std::vector<tick> multiples_of(double step, int most) const {
        std::vector<tick> out;
        const double first = std::ceil(low_ / step - 1e-9);
        // Counted, not accumulated: adding 0.1 often does not give 1.
        for (int i = 0; i <= 10 * most && (first + i) * step <= high_ + 1e-9 * step; ++i)
            out.push_back(labelled((first + i) * step));
        return out;
    }

    [[nodiscard]] std::vector<tick> power_ticks(int wanted) const {
        std::vector<tick> out;
        const double base = axis_.scale == scale::log2 ? 2 : 10;
        const int first = static_cast<int>(std::ceil(low_ - 1e-9));
        const int last = static_cast<int>(std::floor(high_ + 1e-9));
        int every = 1;
        while ((last - first) / every + 1 > std::max(1, wanted)) ++every;
        for (int e = first; e <= last; e += every)
            if (const double v = std::pow(base, e); drawable(v)) out.push_back(labelled(v)); // not past double's range
        return out;
    }

    // Within one or two decades powers of ten are too few: 1, 2, 5, or even every digit.
    [[nodiscard]] std::vector<tick> mantissa_ticks(double span) const {
        std::vector<tick> out;
        const bool all = span < 0.7;
        for (int e = static_cast<int>(std::floor(low_)) - 1; e <= static_cast<int>(std::ceil(high_)); ++e)
            for (int m = 1; m <= 9; ++m) {
                if (!all && m != 1 && m != 2 && m != 5) continue;
                const double v = m * std::pow(10.0, e);
                const double t = transform(v);
                if (t >= low_ - 1e-9 && t <= high_ + 1e-9) out.push_back(labelled(v));
            }
        return out;
    }

    axis axis_;
    double low_ = 0; // transformed
    double high_ = 1;
};

} // namespace collx::tools
