/*
 * Reads a film with libavformat, from a place or from its beginning to its end, decodes all of it,
 * and says what came: a line for each frame.
 *
 * usage: receive URL [SECOND [TRANSPORT [jump]]]
 *
 * "key" and "coded" are frames as they were coded, of which the first need no other, and "decoded"
 * is a picture or a piece of sound. After it stand the stream, the time of presentation in
 * microseconds ("-" without one), the number of bytes, and their MD5. "bytes" is coded sound that
 * may be cut anywhere, with the bytes themselves. Of coded pictures are left out what a server may
 * repeat or a receiver makes up: lengths or start codes in front of NAL units, parameter sets, and
 * the tables of JPEG.
 * Nothing is trimmed that a container says is not to be heard. Of a server the film is asked for
 * once, by a PLAY with a Range: no packet of another place is on its way. Except with "jump": then
 * it plays from its beginning until WATCHED packets have come, and goes to the place from there.
 */
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/imgutils.h>
#include <libavutil/md5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS_MAX 8
#define WATCHED 40

static AVFormatContext *film;
static AVCodecContext *decoders[STREAMS_MAX];
static unsigned streams;

static void say(const char *what, int stream, int64_t pts, const uint8_t *bytes, int count)
{
    int at, is_cut_anywhere = strcmp(what, "bytes") == 0;
    uint8_t sum[16];

    printf("%s %d ", what, stream);
    if (pts == AV_NOPTS_VALUE)
        printf("-");
    else
        printf("%lld", (long long)av_rescale_q(pts, film->streams[stream]->time_base,
                                               AV_TIME_BASE_Q));
    av_md5_sum(sum, bytes, count);
    printf(" %d ", count);
    for (at = 0; at < (is_cut_anywhere ? count : 16); at++)
        printf("%02x", is_cut_anywhere ? bytes[at] : sum[at]);
    printf("\n");
}

static void say_frame(int stream, const AVFrame *frame)
{
    int planes = 1, each, bytes, plane;
    /* The guess goes by times of decoding once those of showing have seemed to run backwards, as
       they do where a receiver begins in the middle; and RTP tells none: they are made up. */
    int64_t pts = frame->pts == AV_NOPTS_VALUE ? frame->best_effort_timestamp : frame->pts;
    uint8_t *copy;

    if (decoders[stream]->codec_type == AVMEDIA_TYPE_VIDEO) {
        bytes = av_image_get_buffer_size(frame->format, frame->width, frame->height, 1);
        copy = av_malloc(bytes);
        av_image_copy_to_buffer(copy, bytes, (const uint8_t *const *)frame->data, frame->linesize,
                                frame->format, frame->width, frame->height, 1);
    } else {
        each = frame->nb_samples * av_get_bytes_per_sample(frame->format);
        if (av_sample_fmt_is_planar(frame->format))
            planes = frame->ch_layout.nb_channels;
        else
            each *= frame->ch_layout.nb_channels;
        bytes = planes * each;
        copy = av_malloc(bytes);
        for (plane = 0; plane < planes; plane++)
            memcpy(copy + plane * each, frame->extended_data[plane], each);
    }
    say("decoded", stream, pts, copy, bytes);
    av_free(copy);
}

/* Decodes a packet, or without one what is left. */
static void decode(int stream, const AVPacket *packet)
{
    AVFrame *frame = av_frame_alloc();

    if (avcodec_send_packet(decoders[stream], packet) < 0)
        fprintf(stderr, "stream %d: a packet cannot be decoded\n", stream);
    while (avcodec_receive_frame(decoders[stream], frame) >= 0)
        say_frame(stream, frame);
    av_frame_free(&frame);
}

static const char *kind(const AVPacket *packet)
{
    if (av_get_bits_per_sample(film->streams[packet->stream_index]->codecpar->codec_id))
        return "bytes";
    return packet->flags & AV_PKT_FLAG_KEY ? "key" : "coded";
}

static int is_parameter_set(enum AVCodecID id, int first)
{
    int of_h265 = first >> 1 & 63;

    if (id == AV_CODEC_ID_H264)
        return (first & 31) == 7 || (first & 31) == 8;
    return of_h265 >= 32 && of_h265 <= 34;
}

/* Bytes of the lengths in front of NAL units, or 0 where start codes are. */
static int length_bytes(const AVCodecParameters *parameters)
{
    int at = parameters->codec_id == AV_CODEC_ID_H264 ? 4 : 21;

    if (parameters->extradata_size <= at || parameters->extradata[0] != 1)
        return 0;
    return (parameters->extradata[at] & 3) + 1;
}

/* Where the next start code begins, or the end. */
static int next_code(const uint8_t *bytes, int from, int count)
{
    for (; from + 3 <= count; from++)
        if (!bytes[from] && !bytes[from + 1] && bytes[from + 2] == 1)
            return from;
    return count;
}

/* The NAL units but for parameter sets, one behind the other with a start code in front. */
static int without_sets(const AVCodecParameters *parameters, const uint8_t *bytes, int count,
                        uint8_t *out)
{
    int lengths = length_bytes(parameters), kept = 0, start, end, at, next;

    for (at = lengths ? 0 : next_code(bytes, 0, count); at < count; at = next) {
        start = at + (lengths ? lengths : 3);
        if (start > count)
            break;
        if (lengths) {
            for (next = 0; at < start; at++)
                next = next << 8 | bytes[at];
            next = next < 0 || next > count - start ? count : start + next;
        } else {
            next = next_code(bytes, start, count);
        }
        for (end = next; end > start && !bytes[end - 1];)
            end--;
        if (end == start || is_parameter_set(parameters->codec_id, bytes[start]))
            continue;
        memcpy(out + kept, "\0\0\1", 3);
        memcpy(out + kept + 3, bytes + start, end - start);
        kept += 3 + end - start;
    }
    return kept;
}

/* What is behind the header of the scan, without marks at its end. */
static int scan_of(const uint8_t *bytes, int count, uint8_t *out)
{
    int at;

    for (at = 2; at + 4 <= count && bytes[at] == 0xff;) {
        int is_scan = bytes[at + 1] == 0xda;

        at += 2 + (bytes[at + 2] << 8 | bytes[at + 3]);
        if (is_scan)
            break;
    }
    if (at > count)
        return 0;
    /* libavformat adds one to that of the file. */
    while (count - at >= 2 && bytes[count - 2] == 0xff && bytes[count - 1] == 0xd9)
        count -= 2;
    memcpy(out, bytes + at, count - at);
    return count - at;
}

static void say_coded(const AVPacket *packet)
{
    const AVCodecParameters *parameters = film->streams[packet->stream_index]->codecpar;
    int count = packet->size;
    /* A length may have one byte, and a start code has three. */
    uint8_t *out = av_malloc(4 * (size_t)count + 4);

    if (parameters->codec_id == AV_CODEC_ID_H264 || parameters->codec_id == AV_CODEC_ID_HEVC)
        count = without_sets(parameters, packet->data, packet->size, out);
    else if (parameters->codec_id == AV_CODEC_ID_MJPEG)
        count = scan_of(packet->data, packet->size, out);
    else
        memcpy(out, packet->data, count);
    say(kind(packet), packet->stream_index, packet->pts, out, count);
    av_free(out);
}

/* Those of streams that came since it was called last: of a transport stream from a server none is
   known before its tables have come. */
static int open_decoders(void)
{
    for (; streams < film->nb_streams && streams < STREAMS_MAX; streams++) {
        unsigned at = streams;
        AVCodecParameters *parameters = film->streams[at]->codecpar;
        int is_mpeg_audio = parameters->codec_id == AV_CODEC_ID_MP2;
        const AVCodec *codec;

        /* RTP does not tell of which layer MPEG audio is. */
        codec = avcodec_find_decoder(is_mpeg_audio ? AV_CODEC_ID_MP3 : parameters->codec_id);
        if (!codec) {
            printf("stream %u %s -\n", at,
                   parameters->codec_id ? av_get_media_type_string(parameters->codec_type) : "-");
            continue;
        }
        decoders[at] = avcodec_alloc_context3(codec);
        avcodec_parameters_to_context(decoders[at], parameters);
        decoders[at]->codec_id = codec->id;
        decoders[at]->pkt_timebase = film->streams[at]->time_base;
        decoders[at]->thread_count = 1;
        decoders[at]->flags |= AV_CODEC_FLAG_BITEXACT;
        decoders[at]->flags2 |= AV_CODEC_FLAG2_SKIP_MANUAL;
        if (avcodec_open2(decoders[at], codec, NULL) < 0)
            return -1;
        printf("stream %u %s %s\n", at, av_get_media_type_string(parameters->codec_type),
               codec->name);
    }
    return 0;
}

int main(int argc, char **argv)
{
    AVDictionary *options = NULL;
    AVPacket *packet = av_packet_alloc();
    int is_served = strncmp(argv[1], "rtsp:", 5) == 0, jumps = argc > 4, watched;
    unsigned at;

    av_log_set_level(AV_LOG_WARNING);
    if (is_served) {
        av_dict_set(&options, "rtsp_transport", argc > 3 ? argv[3] : "udp", 0);
        av_dict_set(&options, "initial_pause", jumps ? "0" : "1", 0);
        av_dict_set(&options, "buffer_size", "4194304", 0);
        /* Of silence, in microseconds. */
        av_dict_set(&options, "timeout", "40000000", 0);
    }
    if (avformat_open_input(&film, argv[1], NULL, &options) < 0)
        return 1;
    for (watched = 0; jumps && watched < WATCHED; watched++) {
        if (av_read_frame(film, packet) < 0)
            return 1;
        av_packet_unref(packet);
    }
    if (argc > 2) {
        int64_t place = (int64_t)(atof(argv[2]) * AV_TIME_BASE + 0.5);

        /* It jumps in streams alone, of which a transport stream from a server has none yet. */
        if (!film->nb_streams && !avformat_new_stream(film, NULL))
            return 1;
        if (av_seek_frame(film, -1, place, AVSEEK_FLAG_BACKWARD) < 0)
            return 1;
    }
    if (is_served && !jumps && av_read_play(film) < 0)
        return 1;
    if (open_decoders() < 0)
        return 1;
    while (av_read_frame(film, packet) >= 0) {
        if (open_decoders() < 0)
            return 1;
        if (packet->stream_index < STREAMS_MAX && decoders[packet->stream_index]) {
            say_coded(packet);
            decode(packet->stream_index, packet);
        }
        av_packet_unref(packet);
    }
    for (at = 0; at < film->nb_streams && at < STREAMS_MAX; at++)
        if (decoders[at])
            decode((int)at, NULL);
    avformat_close_input(&film);
    return 0;
}
