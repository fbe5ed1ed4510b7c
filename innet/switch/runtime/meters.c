/* Meters with two rates and three colours, as in BMv2. */

#include "switch.h"

/* The most tokens that can be counted. Only absurd rates reach this number, and then a meter is always
 * full. */
static const double TOO_MANY = 9e18;

static void refill(struct rate *rate, uint64_t now_us)
{
    double since_start = (double)now_us * rate->per_us;
    if (since_start >= TOO_MANY) {
        rate->tokens = rate->burst;
        return;
    }
    uint64_t given = (uint64_t)since_start;
    if (given < rate->given)
        return;
    uint64_t room = rate->burst - rate->tokens, fresh = given - rate->given;
    rate->tokens += fresh < room ? fresh : room;
    rate->given = given;
}

static bool take(struct rate *rate, uint64_t now_us, uint64_t input)
{
    refill(rate, now_us);
    if (rate->tokens < input)
        return false;
    rate->tokens -= input;
    return true;
}

uint32_t meter_colour(struct meter *meter, uint64_t now_us, uint64_t input)
{
    if (!meter->configured)
        return GREEN;
    if (!take(&meter->peak, now_us, input))
        return RED;
    return take(&meter->committed, now_us, input) ? GREEN : YELLOW;
}

void configure_meter(struct meter *meter, const struct meter_config *config)
{
    *meter = (struct meter){0};
    if (!config)
        return;
    meter->configured = true;
    meter->committed = (struct rate){(double)config->committed_rate / 1e6, config->committed_burst,
                                     config->committed_burst, 0};
    meter->peak =
        (struct rate){(double)config->peak_rate / 1e6, config->peak_burst, config->peak_burst, 0};
}
