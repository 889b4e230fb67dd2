/*
 * Plays a film with libavformat, seeks in it, and says what is read: a line for each place.
 *
 * usage: seek TRANSPORT URL SECOND...
 *
 * A line is the second that was asked for (0 for the beginning, too), of the video the times of the
 * first picture near it that needs no other, and of the last that was read; how many packets and
 * bytes came near it, and how many of elsewhere before. A time that did not come is -1.
 */
#include <libavformat/avformat.h>
#include <libavutil/time.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Seconds that are read, that a place may be off by, and that are waited for. */
#define READ 1.5
#define NEAR 2.0
#define PATIENCE 40

static time_t give_up;

static int is_over(void *unused)
{
    (void)unused;
    return time(NULL) > give_up;
}

static int watch(AVFormatContext *film, int video, double place)
{
    AVPacket *packet = av_packet_alloc();
    AVRational unit = film->streams[video]->time_base;
    double key = -1, last = -1;
    long packets = 0, bytes = 0, elsewhere = 0;

    give_up = time(NULL) + PATIENCE;
    while ((key < 0 || last < key + READ) && av_read_frame(film, packet) >= 0) {
        if (packet->stream_index == video && packet->pts != AV_NOPTS_VALUE) {
            double at = packet->pts * av_q2d(unit);
            if (at < place - NEAR || at > place + NEAR + READ) {
                elsewhere++;
            } else {
                if (key < 0 && packet->flags & AV_PKT_FLAG_KEY)
                    key = at;
                last = at;
                packets++;
                bytes += packet->size;
            }
        }
        av_packet_unref(packet);
    }
    printf("%g %.3f %.3f %ld %ld %ld\n", place, key, last, packets, bytes, elsewhere);
    fflush(stdout);
    av_packet_free(&packet);
    return key >= 0;
}

int main(int argc, char **argv)
{
    AVFormatContext *film = avformat_alloc_context();
    AVDictionary *options = NULL;
    int video, place;

    film->interrupt_callback.callback = is_over;
    give_up = time(NULL) + PATIENCE;
    av_dict_set(&options, "rtsp_transport", argv[1], 0);
    if (avformat_open_input(&film, argv[2], NULL, &options) < 0 ||
        avformat_find_stream_info(film, NULL) < 0 ||
        (video = av_find_best_stream(film, AVMEDIA_TYPE_VIDEO, -1, -1, NULL, 0)) < 0)
        return 1;
    if (!watch(film, video, 0))
        return 2;
    for (place = 3; place < argc; place++) {
        double second = atof(argv[place]);
        /* Who has seen enough does not read: what comes meanwhile is old when it is read. */
        av_usleep(300000);
        give_up = time(NULL) + PATIENCE;
        if (av_seek_frame(film, -1, (int64_t)(second * AV_TIME_BASE), AVSEEK_FLAG_BACKWARD) < 0 ||
            !watch(film, video, second))
            return 2;
    }
    avformat_close_input(&film);
    return 0;
}
