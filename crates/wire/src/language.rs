//! Languages as playlists and manifests tell of them: tags of BCP 47 (RFC 5646).
//!
//! Containers have codes of three letters (ISO 639-2), of which a tag has the one of two letters
//! where there is one (RFC 5646, section 2.2.1): players compare tags with what their users speak.

use std::borrow::Cow;

/// Bytes of a tag at the most; a longer one is not told (RFC 5646, section 4.4.1).
const TAG_BYTES_MAX: usize = 35;

/// Letters and digits of each part of a tag at the most.
const SUBTAG_BYTES_MAX: usize = 8;

/// The codes of three letters, for terms and for libraries, of the languages that have one of two.
const PAIRS: &str = "\
    aar=aa abk=ab afr=af aka=ak alb=sq amh=am ara=ar arg=an arm=hy asm=as ava=av ave=ae aym=ay \
    aze=az bak=ba bam=bm baq=eu bel=be ben=bn bih=bh bis=bi bod=bo bos=bs bre=br bul=bg bur=my \
    cat=ca ces=cs cha=ch che=ce chi=zh chu=cu chv=cv cor=kw cos=co cre=cr cym=cy cze=cs dan=da \
    deu=de div=dv dut=nl dzo=dz ell=el eng=en epo=eo est=et eus=eu ewe=ee fao=fo fas=fa fij=fj \
    fin=fi fra=fr fre=fr fry=fy ful=ff geo=ka ger=de gla=gd gle=ga glg=gl glv=gv gre=el grn=gn \
    guj=gu hat=ht hau=ha heb=he her=hz hin=hi hmo=ho hrv=hr hun=hu hye=hy ibo=ig ice=is ido=io \
    iii=ii iku=iu ile=ie ina=ia ind=id ipk=ik isl=is ita=it jav=jv jpn=ja kal=kl kan=kn kas=ks \
    kat=ka kau=kr kaz=kk khm=km kik=ki kin=rw kir=ky kom=kv kon=kg kor=ko kua=kj kur=ku lao=lo \
    lat=la lav=lv lim=li lin=ln lit=lt ltz=lb lub=lu lug=lg mac=mk mah=mh mal=ml mao=mi mar=mr \
    may=ms mkd=mk mlg=mg mlt=mt mon=mn mri=mi msa=ms mya=my nau=na nav=nv nbl=nr nde=nd ndo=ng \
    nep=ne nld=nl nno=nn nob=nb nor=no nya=ny oci=oc oji=oj ori=or orm=om oss=os pan=pa per=fa \
    pli=pi pol=pl por=pt pus=ps que=qu roh=rm ron=ro rum=ro run=rn rus=ru sag=sg san=sa sin=si \
    slk=sk slo=sk slv=sl sme=se smo=sm sna=sn snd=sd som=so sot=st spa=es sqi=sq srd=sc srp=sr \
    ssw=ss sun=su swa=sw swe=sv tah=ty tam=ta tat=tt tel=te tgk=tg tgl=tl tha=th tib=bo tir=ti \
    ton=to tsn=tn tso=ts tuk=tk tur=tr twi=tw uig=ug ukr=uk urd=ur uzb=uz ven=ve vie=vi vol=vo \
    wel=cy wln=wa wol=wo xho=xh yid=yi yor=yo zha=za zho=zh zul=zu";

/// The tag of a language that a container or a file's name spells so; `None` if that says nothing,
/// or is no tag.
pub(crate) fn tag(told: &str) -> Option<Cow<'_, str>> {
    let told = told.trim();
    if told.len() > TAG_BYTES_MAX {
        return None;
    }
    let told = match told.contains('_') {
        true => Cow::from(told.replace('_', "-")),
        false => Cow::from(told),
    };
    let is_one = |(at, part): (usize, &str)| {
        let is_of_its_letters = match at {
            0 => part.bytes().all(|it| it.is_ascii_alphabetic()),
            _ => part.bytes().all(|it| it.is_ascii_alphanumeric()),
        };
        (1..=SUBTAG_BYTES_MAX).contains(&part.len()) && is_of_its_letters
    };
    let language = told.split('-').next().unwrap_or_default();
    if !told.split('-').enumerate().all(is_one) || language.eq_ignore_ascii_case("und") {
        return None;
    }
    let short = PAIRS.split(' ').find_map(|pair| {
        let (long, short) = pair.split_once('=')?;
        long.eq_ignore_ascii_case(language).then_some(short)
    });
    let Some(short) = short else {
        return Some(told);
    };
    Some(format!("{short}{}", &told[language.len()..]).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_told_by_their_shortest_code() {
        for (told, expected) in [
            ("eng", Some("en")),
            ("ENG", Some("en")),
            ("ger", Some("de")),
            ("deu", Some("de")),
            ("fre", Some("fr")),
            ("fra", Some("fr")),
            ("ger-AT", Some("de-AT")),
            ("zho-Hant-TW", Some("zh-Hant-TW")),
            ("en", Some("en")),
            ("pt-BR", Some("pt-BR")),
            ("pt_BR", Some("pt-BR")),
            ("fil", Some("fil")),
            ("mul", Some("mul")),
            ("qaa", Some("qaa")),
            ("und", None),
            ("", None),
            ("-en", None),
            ("en-", None),
            ("\"<", None),
            ("e\u{301}n", None),
            ("abcdefghi", None),
            (
                "en-aaaaaaaa-bbbbbbbb-cccccccc-ddddd",
                Some("en-aaaaaaaa-bbbbbbbb-cccccccc-ddddd"),
            ),
            ("en-aaaaaaaa-bbbbbbbb-cccccccc-dddddd", None),
        ] {
            assert_eq!(tag(told).as_deref(), expected, "{told}");
        }
    }

    #[test]
    fn the_table_has_codes_of_three_letters_and_of_two() {
        for pair in PAIRS.split(' ') {
            let (long, short) = pair.split_once('=').unwrap();
            assert_eq!((long.len(), short.len()), (3, 2), "{pair}");
            let is_known = PAIRS.matches(&format!("{long}=")).count() == 1;
            assert!(is_known && pair.bytes().all(|it| it == b'=' || it.is_ascii_lowercase()));
        }
    }
}
